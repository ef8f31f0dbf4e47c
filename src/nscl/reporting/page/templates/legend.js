// The legend: switches of series. Of many series only some have curves at first; all else shows every one.

// Returns which labels are hidden: in curves what is not switched on, elsewhere what was switched off.
function setUpLegend(section, changed) {
  const switched = new Map(Object.entries(kept(section, "switched") || {}));
  const buttons = [...section.querySelectorAll(".legend [data-series]")];
  const isOn = (button) => switched.get(button.dataset.series) ?? "first" in button.dataset;
  const isOff = (button) => switched.get(button.dataset.series) === false;
  const press = () => buttons.forEach((button) => {
    button.setAttribute("aria-pressed", String(isOn(button)));
    button.classList.toggle("off", isOff(button));
  });
  const update = () => {
    press();
    kept(section, "switched", Object.fromEntries(switched));
    changed();
  };
  const all = (on) => buttons.forEach((button) => switched.set(button.dataset.series, on));
  buttons.forEach((button) => button.addEventListener("click", () => {
    switched.set(button.dataset.series, !isOn(button));
    update();
  }));
  section.querySelector(".legend .all")?.addEventListener("click", () => {
    all(!buttons.every(isOn));
    update();
  });
  section.querySelector(".legend .first")?.addEventListener("click", () => {
    switched.clear();
    update();
  });
  press();
  return (curves) => buttons.filter((b) => (curves ? !isOn(b) : isOff(b))).map((b) => b.dataset.series);
}
