// The charts, drawn by Vega.

const { config, sections, pairs } = JSON.parse(document.getElementById("data").textContent);

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

// Names beside markers: each moves until it overlaps no other and no marker, or is left out.
// Vega does this; Vega-Lite has no word for it, so it is added to what it compiled.
function withPlacedNames(vega) {
  for (const mark of vega.marks) {
    if (mark.name !== "names_marks") continue;
    mark.transform = [{
      type: "label", size: { signal: "[width, height]" }, avoidMarks: ["dots_marks", "across_marks", "along_marks"], padding: 4,
      anchor: ["right", "left", "top", "bottom", "top-right", "bottom-right", "top-left", "bottom-left", "right", "left", "top", "bottom"],
      offset: [8, 8, 8, 8, 5, 5, 5, 5, 14, 14, 14, 14],
    }];
  }
  return vega;
}

// "ast": expressions are interpreted, not compiled, as the page's policy allows no eval.
const OPTIONS = {
  mode: "vega-lite", renderer: "svg", actions: false, ast: true, logLevel: 1, config, patch: withPlacedNames,
  tooltip: { formatTooltip: tooltip, disableDefaultStyle: true },
};

// Draws a chart, and again when a heat map's width changes; returns how to hide series in it.
function setUpChart(section, figure, hidden) {
  const { chart } = figure.dataset, box = figure.querySelector(".plot"), bind = figure.querySelector(".choice");
  const spec = sections[section.dataset.section][chart];
  const curves = Boolean(spec.usermeta?.curves);
  const [choice, off] = ["choice", "hidden"].map((name) => spec.params.find((p) => p.name === name));
  const before = choice && kept(section, `choice ${chart}`);
  if (choice && choice.bind.options.includes(before)) choice.value = before;
  let width = 0, drawn = null, drawing = Promise.resolve();
  const draw = async () => {
    drawn?.finalize();
    bind.replaceChildren();
    if (off) off.value = hidden(curves);
    drawn = await vegaEmbed(box, fitted(spec, box.clientWidth), { ...OPTIONS, bind });
    if (choice) drawn.view.addSignalListener("choice", (_, value) => { choice.value = value; kept(section, `choice ${chart}`, value); });
  };
  new ResizeObserver(() => {
    const resized = box.clientWidth !== width;
    if (resized && (spec.facet || !width)) drawing = drawing.then(draw);
    width = box.clientWidth;
  }).observe(box);
  return () => { if (off) drawing = drawing.then(() => drawn?.view.signal("hidden", hidden(curves)).runAsync()); };
}
