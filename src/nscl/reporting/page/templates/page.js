// The page: theme, legend with switches, charts drawn by Vega, and the live reload.

const root = document.documentElement;
const themeButton = document.getElementById("theme");
const { config, sections } = JSON.parse(document.getElementById("data").textContent);

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };

function setUpTheme() {
  const chosen = remembered("theme");
  if (chosen) root.dataset.theme = chosen;
  nameTheme();
  systemDark.addEventListener("change", nameTheme);
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered("theme", root.dataset.theme);
    nameTheme();
  });
}

// Switches series on and off; returns the labels of those that are off.
function setUpLegend(section, changed) {
  const off = new Set(kept(section, "off"));
  const buttons = [...section.querySelectorAll(".legend [data-series]")];
  const press = () => buttons.forEach((b) => b.setAttribute("aria-pressed", String(!off.has(b.dataset.series))));
  const update = () => {
    press();
    kept(section, "off", [...off]);
    changed();
  };
  buttons.forEach((button) => button.addEventListener("click", () => {
    const { series } = button.dataset;
    off.has(series) ? off.delete(series) : off.add(series);
    update();
  }));
  section.querySelector(".legend .all")?.addEventListener("click", () => {
    if (off.size) off.clear();
    else buttons.forEach((b) => off.add(b.dataset.series));
    update();
  });
  press();
  return () => buttons.map((b) => b.dataset.series).filter((label) => off.has(label));
}

// Cells and columns of heat maps for this width; all other charts fit themselves.
function fitted(spec, width) {
  if (!spec.facet) return spec;
  const { cell, columns, beside } = spec.usermeta, gap = 16;
  const narrow = Math.min(cell, Math.max(8, Math.floor((width - beside - 4) / columns)));
  const maps = Math.max(1, Math.floor((width + gap) / (narrow * columns + beside + gap)));
  const params = spec.params.map((p) => (p.name === "cell" ? { ...p, value: narrow } : p));
  return { ...spec, params, columns: maps, spacing: gap, spec: { ...spec.spec, width: narrow * columns } };
}

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// A heading and rows: the lines at the pointer, largest first, or a mark's own values.
function tooltip({ title, lines, ...values }) {
  const pairs = lines
    ? [...lines].sort((a, b) => b.mean - a.mean).map((line) => [line.series, line.text])
    : Object.entries(values);
  const rows = pairs.map(([name, value]) => `<tr><td>${escaped(name)}</td><td>${escaped(value)}</td></tr>`);
  return `${title === undefined ? "" : `<b>${escaped(title)}</b>`}<table>${rows.join("")}</table>`;
}

// "ast": expressions are interpreted, not compiled, as the page's policy allows no eval.
const OPTIONS = {
  mode: "vega-lite", renderer: "svg", actions: false, ast: true, logLevel: 1, config,
  tooltip: { formatTooltip: tooltip, disableDefaultStyle: true },
};

// Draws a chart, and again when a heat map's width changes; returns how to hide series in it.
function setUpChart(section, figure, hidden) {
  const { chart } = figure.dataset, box = figure.querySelector(".plot"), bind = figure.querySelector(".choice");
  const spec = sections[section.dataset.section][chart];
  const [choice, off] = ["choice", "hidden"].map((name) => spec.params.find((p) => p.name === name));
  const before = choice && kept(section, `choice ${chart}`);
  if (choice && choice.bind.options.includes(before)) choice.value = before;
  let width = 0, drawn = null, drawing = Promise.resolve();
  const draw = async () => {
    drawn?.finalize();
    bind.replaceChildren();
    if (off) off.value = hidden();
    drawn = await vegaEmbed(box, fitted(spec, box.clientWidth), { ...OPTIONS, bind });
    if (choice) drawn.view.addSignalListener("choice", (_, value) => { choice.value = value; kept(section, `choice ${chart}`, value); });
  };
  new ResizeObserver(() => {
    const resized = box.clientWidth !== width;
    if (resized && (spec.facet || !width)) drawing = drawing.then(draw);
    width = box.clientWidth;
  }).observe(box);
  return () => { if (off) drawing = drawing.then(() => drawn?.view.signal("hidden", hidden()).runAsync()); };
}

function setUpLive() {
  const live = document.querySelector('meta[name="nscl-live"]');
  if (!live) return;
  const place = remembered("place");
  if (place) scrollTo(0, Number(place));
  setInterval(async () => {
    try {
      const answer = await fetch("version", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== live.content) {
        remembered("place", String(scrollY));
        location.reload();
      }
    } catch {
      document.querySelector(".live").textContent = "the server has stopped";
    }
  }, 2000);
}

setUpTheme();
for (const section of document.querySelectorAll("[data-section]")) {
  setUpTable(section);
  setUpCommands(section);
  setUpDetails(section);
  const redraws = [];
  const hidden = setUpLegend(section, () => redraws.forEach((redraw) => redraw()));
  for (const figure of section.querySelectorAll("[data-chart]")) redraws.push(setUpChart(section, figure, hidden));
}
setUpLive();
