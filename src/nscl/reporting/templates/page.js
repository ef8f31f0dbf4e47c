// The page: theme, legend with switches, all charts of all sections, and the live reload.

const root = document.documentElement;
const themeButton = document.getElementById("theme");

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

function setUpLegend(section, data, redraw) {
  const off = new Set(kept(section, "off"));
  const legend = section.querySelector(".legend");
  const buttons = data.series.map((series) => {
    const button = html("button", { type: "button", class: "button", "aria-pressed": String(!off.has(series.label)), "data-series": series.label }, legend);
    button.append(swatch(series.look, series.keeps));
    html("span", { class: "long", text: series.label, title: series.label }, button);
    button.addEventListener("click", () => {
      off.has(series.label) ? off.delete(series.label) : off.add(series.label);
      update();
    });
    return button;
  });
  const update = () => {
    buttons.forEach((b) => b.setAttribute("aria-pressed", String(!off.has(b.dataset.series))));
    kept(section, "off", [...off]);
    redraw();
  };
  if (data.series.length > 2) {
    const both = html("button", { type: "button", class: "button quiet", text: "all on / off" }, legend);
    both.addEventListener("click", () => {
      if (off.size) off.clear();
      else data.series.forEach((s) => off.add(s.label));
      update();
    });
  }
  return (series) => !off.has(series.label);
}

// A card with a title, perhaps a choice, and a drawing that is made again when its width changes.
function card(charts, { title, full = false, choices = null, key, draw }) {
  const figure = html("figure", { class: `chart${full ? " full" : ""}`, "data-chart": key }, charts);
  const caption = html("figcaption", {}, figure);
  html("span", { text: title }, caption);
  const side = html("span", { class: "quiet" }, caption);
  const box = html("div", { class: "plot" }, figure);
  let choice = 0;
  if (choices && choices.length > 1) {
    const section = charts.closest("[data-section]");
    const select = html("select", { "aria-label": title }, side);
    choices.forEach((text, i) => html("option", { value: i, text }, select));
    choice = Math.max(0, choices.indexOf(kept(section, `choice ${key}`)));
    select.value = choice;
    select.addEventListener("change", () => {
      choice = Number(select.value);
      kept(section, `choice ${key}`, choices[choice]);
      draw(box, choice, side);
    });
  }
  const again = () => draw(box, choice, side);
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth !== width) { width = box.clientWidth; again(); }
  }).observe(box);
  return again;
}

function taskAxis(tasks, label = "after task") {
  return { domain: [tasks > 1 ? 0.8 : 0.5, tasks + 0.2], ticks: taskTicks(tasks), label };
}

// What each line of a chart means, where the section's own legend does not tell.
function keyOf(box, lines) {
  const key = html("div", { class: "key" }, box);
  for (const line of lines) {
    key.append(swatch(line.look));
    html("span", { text: line.label }, key);
  }
}

function curveCards(charts, data, on) {
  const lines = (points) => data.series.filter(on).map((s) => ({ ...s, points: points(s) })).filter((l) => l.points && l.points.length);
  const means = (found) => found.flatMap((l) => l.points.map((p) => p[1]));
  const bands = (found, most = Infinity) => found.flatMap((l) => l.points.flatMap(([, m, d = 0]) => [Math.max(m - d, 0), Math.min(most, m + d)]));
  const cards = [];
  const add = (options) => cards.push(card(charts, options));
  const accuracies = (box, found, label) => lineChart(box, found, {
    x: taskAxis(data.tasks), y: { domain: padded(bands(found, 100).concat(found.length ? [] : [0, 1]), { most: 100 }), label }, unit: " %", clip: [0, 100],
  });
  const numbered = (pairs, from = 1) => pairs && pairs.map((p, i) => [i + from, ...p]);
  if (data.tasks > 1) {
    add({ key: "acc", title: "ACC after each task", draw: (box) => accuracies(box, lines((s) => numbered(s.acc)), "ACC (%)") });
  }
  if (data.series.some((s) => s.end)) {
    add({ key: "plane", title: "ACC against BWT", draw: (box) => scatter(box, data.series.filter((s) => on(s) && s.end).map((s) => ({ ...s, x: s.end[0], y: s.end[1] })), { xLabel: "BWT (points)", yLabel: "ACC (%)" }) });
  }
  if (data.tasks > 1) {
    const choices = Array.from({ length: data.tasks - 1 }, (_, t) => `task ${t + 1}`);
    add({ key: "task", title: "Accuracy on one task while later ones are learned", choices, draw: (box, t) => accuracies(box, lines((s) => s.tasks[t] && numbered(s.tasks[t], t + 1)), "accuracy (%)") });
  }
  if (data.series.some((s) => s.times)) {
    add({ key: "times", title: "Time per step", draw: (box) => {
      const found = lines((s) => numbered(s.times));
      const begun = Math.max(...data.series.map((s) => (s.times ? s.times.length : 0)));
      lineChart(box, found, { x: taskAxis(begun, "task"), y: { domain: padded(bands(found).concat(0), { zero: true }), label: "ms" }, unit: " ms" });
    } });
  }
  data.sweeps.forEach((sweep, i) => {
    for (const [key, label] of [["acc", "ACC (%)"], ["bwt", "BWT (points)"]]) {
      add({ key: `sweep-${key}-${i}`, title: `${label.split(" ")[0]} against ${sweep.name}`, draw: (box) => {
        const found = sweep.lines.map((l) => ({ ...l, points: l.x.map((x, k) => [x, ...l[key][k]]) }));
        const xs = found.flatMap((l) => l.x);
        const domain = sweep.log ? [Math.min(...xs) / 1.3, Math.max(...xs) * 1.3] : padded(xs);
        const marks = sweep.log ? logTicks(...domain).map((t, k, all) => ({ at: t, text: logLabels(all)[k] })) : ticks(...domain).map((t) => ({ at: t, text: String(t) }));
        const spread = found.flatMap((l) => l.points.flatMap(([, m, d = 0]) => [m - d, m + d]));
        lineChart(box, found, { x: { domain, log: sweep.log, ticks: marks, label: sweep.name }, y: { domain: padded(spread), label }, name: (v) => `${sweep.name.split(" ")[0]} = ${v}` });
        if (found.some((l) => l.beside)) keyOf(box, found);
      } });
    }
  });
  const tracked = Math.max(0, ...data.series.map((s) => (s.losses ? s.losses.curves.length : 0)));
  const begun = Math.max(0, ...data.series.map((s) => (s.losses ? Math.ceil(Math.max(...s.losses.places)) : 0)));
  if (tracked) {
    add({ key: "losses", title: "Training loss of old tasks", choices: Array.from({ length: tracked }, (_, t) => `task ${t + 1}`), draw: (box, t) => {
      const found = lines((s) => s.losses && s.losses.curves[t] && s.losses.curves[t].map((v, i) => [s.losses.places[i], v]).filter((p) => p[1] !== null && p[1] > 0));
      const values = means(found).concat(found.length ? [] : [0.1, 1]);
      lineChart(box, found, {
        x: { domain: [0, begun], ticks: taskTicks(begun, -0.5), label: "task being learned" },
        y: { log: true, domain: [Math.min(...values) / 1.5, Math.max(...values) * 1.5], label: "training loss" }, digits: 4,
        name: (v) => `task ${Math.ceil(v)}, ${Math.round((v - Math.ceil(v) + 1) * 100)} % of its epochs`,
      });
    } });
  }
  // No hole beside the last of an odd number of charts.
  if (cards.length % 2) charts.lastChild.classList.add("full");
  return cards;
}

function scaleBar(side, domain, digits) {
  side.querySelector(".scale")?.remove();
  const bar = html("span", { class: "scale" }, side);
  html("span", { text: shown(domain[0], digits) }, bar);
  const stops = Array.from({ length: 10 }, (_, i) => `rgb(${cividis(i / 9)})`);
  html("i", {}, bar).style.background = `linear-gradient(90deg,${stops})`;
  html("span", { text: shown(domain[1], digits) }, bar);
}

function matrixCard(charts, data, on) {
  const values = data.series.flatMap((s) => s.matrix.flat());
  const domain = [Math.floor(Math.min(...values)), Math.ceil(Math.max(...values))];
  const names = Array.from({ length: data.tasks }, (_, i) => String(i + 1));
  return card(charts, { key: "matrix", title: "Accuracy on each task after each task (%)", full: true, draw: (box, _, side) => {
    box.className = "plot maps";
    box.replaceChildren();
    scaleBar(side, domain, 0);
    const cell = data.tasks <= 8 ? 34 : data.tasks <= 12 ? 24 : 13;
    for (const series of data.series.filter(on)) {
      heatMap(box, {
        title: series.label, rows: series.matrix, columns: series.matrix.length, rowNames: names.slice(0, series.matrix.length), columnNames: names,
        share: scale(domain, [0, 1]), digits: 0, cell, height: Math.round(cell * 0.8), rowLabel: "after task", columnLabel: "accuracy on task",
        told: (parent, i, j, value) => {
          html("b", { text: series.label }, parent);
          html("div", { text: `task ${j + 1} after task ${i + 1}: ${shown(value)} %` }, parent);
        },
      });
    }
  } });
}

function spectralCards(charts, data, on) {
  const having = data.series.filter((s) => s.layers);
  if (!having.length) return [];
  const cards = [];
  const map = (key, title, field, domain, log) => cards.push(card(charts, { key, title, full: true, draw: (box, _, side) => {
    box.className = "plot maps";
    box.replaceChildren();
    const share = scale(domain, [0, 1], log);
    scaleBar(side, domain, 2);
    for (const series of having.filter(on)) {
      const { names, tasks } = series.layers;
      const wide = tasks.length <= 12;
      heatMap(box, {
        title: series.label, rows: series.layers[field], columns: tasks.length, rowNames: names, columnNames: tasks.map(String), digits: 2,
        share: (value) => share(Math.max(value, domain[0])), cell: wide ? 44 : 16, height: 22, rowLabel: "", columnLabel: "after task",
        told: (parent, i, j, value) => {
          html("b", { text: `${series.label}, ${names[i]}` }, parent);
          html("div", { text: `after task ${tasks[j]}: ${figures(value)}` }, parent);
        },
      });
    }
  } }));
  // One layer with R = 1 would leave all others in one colour: decades, one at least, eight at most,
  // and none just for what is next to nothing.
  const shares = having.flatMap((s) => s.layers.share.flat()).filter((v) => v > 0);
  const top = Math.max(...shares, 1e-300), least = Math.min(...shares.filter((v) => v >= top * 1e-8), top);
  map("share", "R: energy of old inputs in freed directions, per layer and task", "share", [Math.min(least, top / 10), top], true);
  map("free", "Free directions, share of each layer", "free", [0, 1], false);
  const curves = having.flatMap((s) => s.layers.curves.map((c) => ({ ...c, label: s.label })));
  cards.push(card(charts, {
    key: "spectrum", title: "Singular values; the freed part is coloured", full: true, choices: curves.map((c) => `${c.label}: ${c.layer}, after task ${c.task}`),
    draw: (box, i, side) => {
      const curve = curves[i];
      side.querySelector(".told")?.remove();
      html("span", { class: "told", text: ` R = ${figures(curve.share)}, ${curve.free} of ${curve.size} free ` }, side);
      side.prepend(side.lastChild);
      spectrumChart(box, curve);
    },
  }));
  return cards;
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
const everything = JSON.parse(document.getElementById("data").textContent);
document.querySelectorAll("[data-section]").forEach((section, index) => {
  const data = everything[index];
  setUpTable(section);
  setUpCommands(section);
  setUpDetails(section);
  if (!data.series.length) return;
  const redraws = [];
  const on = setUpLegend(section, data, () => redraws.forEach((draw) => draw()));
  const charts = section.querySelector(".charts");
  redraws.push(...curveCards(charts, data, on), matrixCard(charts, data, on), ...spectralCards(charts, data, on));
});
addEventListener("scroll", hideTip, { passive: true });
setUpLive();
