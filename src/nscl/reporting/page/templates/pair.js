// Two runs side by side: the settings in which they differ, their curves and their matrices.

// A specification with the names of the two runs and their rows of data.
function filled(spec, names, rows) {
  const named = names.reduce((text, name, i) => text.replaceAll(`"@${i + 1}"`, JSON.stringify(name)), JSON.stringify(spec));
  return { ...JSON.parse(named), datasets: { ...spec.datasets, rows } };
}

const alone = (x, mean) => ({ x, mean, std: mean.map(() => null) });
const mean = (row) => row.reduce((sum, value) => sum + value, 0) / row.length;

const PAIR_ROWS = {
  acc: (run) => {
    const x = run.matrix.map((_, i) => i + 1);
    return { series: run.label, ...alone(x, run.matrix.map(mean)), marked: x };
  },
  loss: (run) => ({ series: run.label, ...alone(run.losses.map((p) => p[0]), run.losses.map((p) => p[1])), marked: [] }),
  matrix: (run) => {
    const cells = run.matrix.flatMap((row, i) => row.map((value, j) => [String(i + 1), String(j + 1), value]));
    const column = (k) => cells.map((cell) => cell[k]);
    return {
      series: run.label, title: run.label, row: column(0), column: column(1), value: column(2),
      text: column(2).map((value) => String(Math.round(value))),
    };
  },
};

function tableRow(tag, texts) {
  const row = document.createElement("tr");
  texts.forEach((text, i) => {
    const cell = document.createElement(i ? tag : "th");
    cell.textContent = text;
    cell.className = i ? "" : "name";
    row.append(cell);
  });
  return row;
}

function compareSettings(table, runs) {
  const differ = Object.keys(runs[0].settings).filter((name) => runs[0].settings[name] !== runs[1].settings[name]);
  const head = document.createElement("thead"), body = document.createElement("tbody");
  head.append(tableRow("th", ["Setting", ...runs.map((run) => run.label)]));
  const figures = runs.map((run) => (run.matrix.length ? mean(run.matrix[run.matrix.length - 1]).toFixed(2) : "–"));
  body.append(...differ.map((name) => tableRow("td", [name, ...runs.map((run) => run.settings[name])])));
  body.append(tableRow("td", ["ACC (%)", ...figures]));
  table.replaceChildren(head, body);
}

function setUpPair(section, pair) {
  const place = section.querySelector(".pair");
  if (!place) return;
  const menus = [...place.querySelectorAll("select")], result = place.querySelector(".compared");
  const views = {};
  const draw = async (figure, runs) => {
    const { pair: key } = figure.dataset, box = figure.querySelector(".plot");
    const spec = filled(pair.charts[key], runs.map((run) => run.label), runs.map(PAIR_ROWS[key]));
    views[key]?.finalize();
    views[key] = await vegaEmbed(box, fitted(spec, box.clientWidth), OPTIONS);
  };
  let drawing = Promise.resolve();
  const update = () => {
    const runs = menus.map((menu) => pair.runs.find((run) => run.label === menu.value));
    kept(section, "pair", menus.map((menu) => menu.value));
    result.hidden = !(runs[0] && runs[1] && runs[0] !== runs[1]);
    if (result.hidden) return;
    compareSettings(place.querySelector(".settings"), runs);
    drawing = drawing.then(() => Promise.all([...result.querySelectorAll("[data-pair]")].map((figure) => draw(figure, runs))));
  };
  const before = kept(section, "pair") || [];
  menus.forEach((menu, i) => {
    if (pair.runs.some((run) => run.label === before[i])) menu.value = before[i];
    menu.addEventListener("change", update);
  });
  update();
  let width = result.clientWidth;
  new ResizeObserver(() => {
    if (!result.hidden && width && result.clientWidth !== width) update();
    width = result.clientWidth;
  }).observe(result);
}
