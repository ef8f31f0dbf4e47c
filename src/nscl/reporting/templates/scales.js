// Numbers to places: scales, ticks, colours, and the few SVG helpers that every chart needs.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, parent = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

function html(name, { text, ...attributes } = {}, parent = null) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

function scale(domain, range, log = false) {
  const map = log ? Math.log10 : (value) => value;
  const [low, high] = domain.map(map);
  const span = high - low || 1;
  return (value) => range[0] + ((map(value) - low) / span) * (range[1] - range[0]);
}

function ticks(low, high, wanted = 5) {
  const rough = (high - low || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

function logTicks(low, high, wanted = 6) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / wanted));
  const found = [];
  for (let i = first; i <= last; i += step) found.push(10 ** i);
  if (found.length > 2) return found;
  // Less than two decades: 2 and 5 as well.
  const fine = [];
  for (let i = first - 1; i <= last; i++) for (const m of [1, 2, 5]) fine.push(Number((m * 10 ** i).toPrecision(6)));
  return fine.filter((t) => t >= low && t <= high);
}

const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

function powerLabel(value) {
  const exponent = String(Math.round(Math.log10(value)));
  return "10" + [...exponent].map((c) => SUPERSCRIPT[c]).join("");
}

function logLabels(values) {
  const powers = values.every((v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6);
  return values.map(powers ? powerLabel : String);
}

function shown(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  const small = digits && value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits;
  return (small ? value.toExponential(1) : value.toFixed(digits)).replace("-", "−");
}

// Three figures, as many as one reads.
const figures = (value) => (Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(2) : value.toPrecision(3)).replace("-", "−");

// cividis (Nuñez, Anderton and Renslow, 2018): alike to colour-blind eyes, even in grey.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"]
  .map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));

function cividis(share) {
  const place = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1);
  const i = Math.min(CIVIDIS.length - 2, Math.floor(place));
  return CIVIDIS[i].map((c, k) => Math.round(c + (CIVIDIS[i + 1][k] - c) * (place - i)));
}

function readableOn(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

// Looks: the same slots as in the paper figures (nscl/reporting/looks.py).
const DASHES = ["", "6 2.5", "1.5 2.5", "6 2 1.5 2", "10 3"];
const MARKERS = [
  "M-3.2,0a3.2,3.2 0 1,0 6.4,0a3.2,3.2 0 1,0 -6.4,0Z", "M-3,-3H3V3H-3Z", "M0,-4L3.7,2.8H-3.7Z", "M0,-4L4,0L0,4L-4,0Z",
  "M0,4L3.7,-2.8H-3.7Z", "M-1.3,-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4V-1.3H-1.3Z", "M-4,0L2.8,-3.7V3.7Z", "M4,0L-2.8,-3.7V3.7Z",
  "M-2,-3.6H2L4,0L2,3.6H-2L-4,0Z", "M-3.6,-2L-2,-3.6L0,-1.6L2,-3.6L3.6,-2L1.6,0L3.6,2L2,3.6L0,1.6L-2,3.6L-3.6,2L-1.6,0Z",
  "M0,-4.6L1.3,-1.5L4.5,-1.4L2,0.7L2.8,3.9L0,2.1L-2.8,3.9L-2,0.7L-4.5,-1.4L-1.3,-1.5Z",
];

const colour = (look) => `var(--c${look[0]})`;

function marker(parent, look, x, y, open = false) {
  return svg("path", {
    d: MARKERS[look[1]], transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
    fill: open ? "var(--ground)" : colour(look), stroke: colour(look), "stroke-width": open ? 1.6 : 0.5,
  }, parent);
}

function swatch(look, open = false) {
  const picture = svg("svg", { width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true" });
  svg("path", { d: "M1,6H29", stroke: colour(look), "stroke-width": 2, "stroke-dasharray": DASHES[look[2]], fill: "none" }, picture);
  marker(picture, look, 15, 6, open);
  return picture;
}
