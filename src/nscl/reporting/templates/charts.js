// Charts: lines over one axis, points in a plane, heat maps, spectra; each drawn anew for its width.

const HEIGHT = 250;
let clips = 0;
const tip = document.getElementById("tip");

function showTip(event, fill) {
  tip.replaceChildren();
  fill(tip);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 16 + width > innerWidth;
  tip.style.left = `${Math.max(4, right ? event.clientX - width - 14 : event.clientX + 16)}px`;
  tip.style.top = `${Math.min(innerHeight - height - 6, Math.max(6, event.clientY - height / 2))}px`;
}

const hideTip = () => { tip.hidden = true; };

function tipRow(parent, series, value) {
  const row = html("div", { class: "row" }, parent);
  if (series.look) row.append(swatch(series.look, series.keeps));
  html("span", { class: "long", text: series.label }, row);
  html("span", { text: value }, row);
}

const withStd = (pair, digits = 2) =>
  shown(pair[0], digits) + (pair.length > 1 ? ` ± ${shown(pair[1], digits)}` : "");

function padded(values, { zero = false, most = Infinity, share = 0.06 } = {}) {
  let low = Math.min(...values), high = Math.max(...values);
  const pad = (high - low || Math.abs(high) * 0.1 || 1) * share;
  low = zero ? 0 : low - pad;
  high = Math.max(low + 1e-9, Math.min(most + pad / 3, high + pad));
  return [low, high];
}

// A frame with axes; returns the drawing group and both scales.
function frame(box, { x, y, height = HEIGHT }) {
  const width = Math.max(260, box.clientWidth || 460);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.label} over ${x.label}` });
  const yTicks = y.log ? logTicks(...y.domain) : ticks(...y.domain);
  const decimals = Math.max(0, ...yTicks.map((t) => (String(t).split(".")[1] || "").length));
  const texts = y.log ? logLabels(yTicks) : yTicks.map((t) => t.toFixed(decimals).replace("-", "−"));
  const left = 34 + 7.2 * Math.max(2, ...texts.map((text) => text.length));
  const inner = { left, right: width - 10, top: 10, bottom: height - 40 };
  const toX = scale(x.domain, [inner.left, inner.right], x.log);
  const toY = scale(y.domain, [inner.bottom, inner.top], y.log);
  for (const [i, t] of yTicks.entries()) {
    const place = toY(t);
    svg("line", { class: "grid", x1: inner.left, x2: inner.right, y1: place, y2: place }, picture);
    const text = svg("text", { class: "tick", x: inner.left - 8, y: place + 4, "text-anchor": "end" }, picture);
    text.textContent = texts[i];
  }
  for (const { at, text } of x.ticks) {
    const label = svg("text", { class: "tick", x: toX(at), y: inner.bottom + 17, "text-anchor": "middle" }, picture);
    label.textContent = text;
  }
  svg("path", { class: "axis", fill: "none", d: `M${inner.left},${inner.top}V${inner.bottom}H${inner.right}` }, picture);
  const xLabel = svg("text", { x: (inner.left + inner.right) / 2, y: height - 5, "text-anchor": "middle" }, picture);
  xLabel.textContent = x.label;
  const yLabel = svg("text", { transform: `translate(12,${(inner.top + inner.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, picture);
  yLabel.textContent = y.label;
  box.replaceChildren(picture);
  return { picture, toX, toY, inner, width, height };
}

function taskTicks(tasks, shift = 0) {
  const step = Math.ceil(tasks / 12);
  return Array.from({ length: Math.ceil(tasks / step) }, (_, i) => ({ at: i * step + 1 + shift, text: String(i * step + 1) }));
}

// lines: [{label, look, keeps, points: [[x, mean, std?]]}]
function lineChart(box, lines, { x, y, digits = 2, unit = "", name = (v) => `${x.label} ${v}`, markers = true, clip = null }) {
  if (!lines.length) {
    const { picture, width } = frame(box, { x: { ...x, domain: [0, 1], ticks: [], log: false }, y: { ...y, domain: [0, 1], log: false } });
    svg("text", { class: "empty", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, picture).textContent = "all methods are switched off";
    return;
  }
  const { picture, toX, toY, inner } = frame(box, { x, y });
  // Bands end at the axes; lines and markers may stand out by half their width.
  const clipped = (by) => {
    const id = `inside-${++clips}`;
    svg("rect", { x: inner.left - by, y: inner.top - by, width: inner.right - inner.left + 2 * by, height: inner.bottom - inner.top + 2 * by },
      svg("clipPath", { id }, picture));
    return svg("g", { "clip-path": `url(#${id})` }, picture);
  };
  const bands = clipped(0), curves = clipped(6);
  for (const line of lines) {
    const banded = line.points.filter((p) => p.length > 2);
    if (banded.length > 1 && !y.log) {
      const within = (v) => toY(Math.min(clip ? clip[1] : v, Math.max(clip ? clip[0] : v, v)));
      const up = banded.map((p) => `${toX(p[0]).toFixed(1)},${within(p[1] + p[2]).toFixed(1)}`);
      const down = banded.map((p) => `${toX(p[0]).toFixed(1)},${within(p[1] - p[2]).toFixed(1)}`).reverse();
      svg("path", { d: `M${up.join("L")}L${down.join("L")}Z`, fill: colour(line.look), opacity: 0.1 }, bands);
    }
  }
  for (const line of lines) {
    const places = line.points.map((p) => `${toX(p[0]).toFixed(1)},${toY(p[1]).toFixed(1)}`);
    svg("path", {
      class: "line", "data-series": line.label, d: `M${places.join("L")}`, fill: "none", stroke: colour(line.look),
      "stroke-width": 1.8, "stroke-dasharray": DASHES[line.look[2]], "stroke-linejoin": "round",
    }, curves);
    const every = Math.max(1, Math.ceil(line.points.length / 12));
    if (markers) line.points.forEach((p, i) => { if (i % every === 0) marker(curves, line.look, toX(p[0]), toY(p[1]), line.keeps); });
  }
  const guide = svg("line", { class: "guide", y1: inner.top, y2: inner.bottom, visibility: "hidden" }, picture);
  const all = [...new Set(lines.flatMap((line) => line.points.map((p) => p[0])))];
  picture.addEventListener("mousemove", (event) => {
    const bounds = picture.getBoundingClientRect();
    const at = ((event.clientX - bounds.left) / bounds.width) * picture.viewBox.baseVal.width;
    const near = all.reduce((a, b) => (Math.abs(toX(b) - at) < Math.abs(toX(a) - at) ? b : a));
    guide.setAttribute("x1", toX(near));
    guide.setAttribute("x2", toX(near));
    guide.setAttribute("visibility", "visible");
    const there = lines.map((line) => [line, line.points.find((p) => p[0] === near)]).filter((pair) => pair[1]);
    there.sort((a, b) => b[1][1] - a[1][1]);
    showTip(event, (parent) => {
      html("b", { text: name(near) }, parent);
      for (const [line, point] of there) tipRow(parent, line, withStd(point.slice(1), digits) + unit);
    });
  });
  picture.addEventListener("mouseleave", () => { guide.setAttribute("visibility", "hidden"); hideTip(); });
}

// dots: [{label, look, keeps, x: [mean, std?], y: [mean, std?]}]
function scatter(box, dots, { xLabel, yLabel }) {
  const spread = (pairs) => pairs.flatMap((p) => [p[0] - (p[1] || 0), p[0] + (p[1] || 0)]);
  const xs = dots.length ? [...spread(dots.map((d) => d.x)), 0] : [0, 1];
  const xDomain = padded(xs), yDomain = padded(dots.length ? spread(dots.map((d) => d.y)) : [0, 1]);
  const x = { domain: xDomain, label: xLabel, ticks: ticks(...xDomain).map((t) => ({ at: t, text: String(t).replace("-", "−") })) };
  const { picture, toX, toY, inner } = frame(box, { x, y: { domain: yDomain, label: yLabel } });
  svg("line", { class: "axis", x1: toX(0), x2: toX(0), y1: inner.top, y2: inner.bottom, "stroke-width": 0.7 }, picture);
  for (const dot of dots) {
    const group = svg("g", { class: "dot", "data-series": dot.label }, picture);
    const [px, py] = [toX(dot.x[0]), toY(dot.y[0])];
    const bar = (d) => svg("path", { d, stroke: colour(dot.look), "stroke-width": 1, fill: "none" }, group);
    if (dot.x[1]) bar(`M${toX(dot.x[0] - dot.x[1])},${py}H${toX(dot.x[0] + dot.x[1])}`);
    if (dot.y[1]) bar(`M${px},${toY(dot.y[0] - dot.y[1])}V${toY(dot.y[0] + dot.y[1])}`);
    const mark = marker(group, dot.look, px, py, dot.keeps);
    mark.setAttribute("transform", `translate(${px},${py}) scale(1.45)`);
    svg("circle", { cx: px, cy: py, r: 12, fill: "transparent" }, group);
    group.addEventListener("mousemove", (event) => showTip(event, (parent) => {
      html("b", { text: dot.label }, parent);
      tipRow(parent, { label: yLabel }, withStd(dot.y));
      tipRow(parent, { label: xLabel }, withStd(dot.x));
    }));
    group.addEventListener("mouseleave", hideTip);
  }
}

// rows of numbers, null where there is none
function heatMap(parent, { title, rows, columns, rowNames, columnNames, share, digits, told, rowLabel, columnLabel, cell: widest = 30, height = 26 }) {
  const figure = html("figure", { class: "map" }, parent);
  const longest = Math.max(...rowNames.map((n) => n.length));
  const left = 24 + longest * 6.6, top = 4, bottom = 36;
  // On a phone narrower cells, without numbers, rather than a picture too small to be read.
  const cell = Math.min(widest, Math.max(8, Math.floor((parent.clientWidth - left - 4) / columns) || widest));
  // Titles of axes have room beside a map of one or two tasks too.
  const half = (text) => (text.length * 6.2) / 2;
  const width = Math.max(left + columns * cell, left + (columns * cell) / 2 + half(columnLabel)) + 4;
  const middle = top + Math.max((rows.length * height) / 2, half(rowLabel));
  const whole = Math.max(top + rows.length * height + bottom, middle + half(rowLabel) + 4);
  html("figcaption", { text: title, title, style: `max-width:${Math.max(150, width)}px` }, figure);
  const picture = svg("svg", { width, height: whole, viewBox: `0 0 ${width} ${whole}`, role: "img" }, figure);
  const label = (text, attributes) => { svg("text", attributes, picture).textContent = text; };
  rows.forEach((row, i) => {
    if (height >= 14 || i % 2 === 0) label(rowNames[i], { x: left - 5, y: top + i * height + height / 2 + 4, "text-anchor": "end" });
    row.forEach((value, j) => {
      if (value === null) return;
      const rgb = cividis(share(value));
      const rect = svg("rect", {
        x: left + j * cell, y: top + i * height, width: cell - 1, height: height - 1, fill: `rgb(${rgb})`, "data-value": value,
      }, picture);
      rect.addEventListener("mousemove", (event) => showTip(event, (t) => told(t, i, j, value)));
      rect.addEventListener("mouseleave", hideTip);
      if (cell >= 30) {
        label(shown(value, digits), {
          x: left + j * cell + cell / 2, y: top + i * height + height / 2 + 4, "text-anchor": "middle",
          style: `fill:${readableOn(rgb)};pointer-events:none;font-size:${cell >= 38 ? 11 : 10.5}px`,
        });
      }
    });
  });
  const step = Math.ceil(columns / Math.max(1, Math.floor((columns * cell) / 22)));
  for (let j = 0; j < columns; j += step) {
    label(columnNames[j], { x: left + j * cell + cell / 2, y: top + rows.length * height + 14, "text-anchor": "middle" });
  }
  label(columnLabel, { x: left + (columns * cell) / 2, y: top + rows.length * height + 30, "text-anchor": "middle" });
  label(rowLabel, { transform: `translate(10,${middle}) rotate(-90)`, "text-anchor": "middle" });
}

function spectrumChart(box, curve) {
  const most = Math.max(...curve.values) || 1;
  const values = curve.values.map((v) => Math.max(v, most * 1e-10));
  const domain = [Math.min(...values) * 0.4, most * 2.5];
  const x = { domain: [1, Math.max(2, curve.size)], label: "index", ticks: ticks(1, curve.size).map((t) => ({ at: t, text: String(t) })) };
  const { picture, toX, toY, inner } = frame(box, { x, y: { domain, log: true, label: "singular value" } });
  const place = (i) => `${toX(curve.x[i]).toFixed(1)},${toY(values[i]).toFixed(1)}`;
  const line = (indices, stroke, width) => indices.length > 1 &&
    svg("path", { d: `M${indices.map(place).join("L")}`, fill: "none", stroke, "stroke-width": width }, picture);
  const indices = curve.x.map((_, i) => i);
  const freed = indices.filter((i) => curve.weights[i] > 0.5);
  for (const i of freed) {
    const from = toX(i ? (curve.x[i] + curve.x[i - 1]) / 2 : curve.x[i]);
    const to = toX(i < indices.length - 1 ? (curve.x[i] + curve.x[i + 1]) / 2 : curve.x[i]);
    const y = toY(values[i]);
    svg("rect", { x: from, y, width: Math.max(0.5, to - from + 0.3), height: inner.bottom - y, fill: "var(--c0)", opacity: 0.25 }, picture);
  }
  line(indices, "var(--held)", 1.8);
  let group = [];
  for (const i of [...freed, Infinity]) {
    if (group.length && i !== group[group.length - 1] + 1) { line(group, "var(--c0)", 2.6); group = []; }
    group.push(i);
  }
  picture.addEventListener("mousemove", (event) => {
    const bounds = picture.getBoundingClientRect();
    const at = ((event.clientX - bounds.left) / bounds.width) * picture.viewBox.baseVal.width;
    const near = indices.reduce((a, b) => (Math.abs(toX(curve.x[b]) - at) < Math.abs(toX(curve.x[a]) - at) ? b : a));
    showTip(event, (parent) => {
      html("b", { text: `direction ${curve.x[near]}` }, parent);
      tipRow(parent, { label: "singular value" }, figures(curve.values[near]));
      tipRow(parent, { label: "free (1) or held (0)" }, shown(curve.weights[near], 2));
    });
  });
  picture.addEventListener("mouseleave", hideTip);
}
