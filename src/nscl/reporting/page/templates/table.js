// The tables: results sorted by a click on a heading, filtered by words and by what methods keep; commands of runs.

function cellValue(row, column) {
  return row.cells[column].dataset.value;
}

const isNumeric = (heading) => heading.querySelector("button").dataset.sort === "number";

function nextDirection(heading) {
  const before = heading.getAttribute("aria-sort");
  // The first click shows the largest numbers first, and names from A.
  const first = isNumeric(heading) ? "descending" : "ascending";
  return before === null ? first : before === "ascending" ? "descending" : "ascending";
}

// Rows stay in their group: methods that keep old data are no match for the others.
const groupRows = (body) => [...body.rows].filter((row) => !row.classList.contains("group"));

function sortTable(table, heading, direction) {
  const headings = [...table.tHead.rows[0].cells];
  const column = headings.indexOf(heading);
  const numeric = isNumeric(heading);
  headings.forEach((h) => h.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const order = (a, b) => {
    const [x, y] = [cellValue(a, column), cellValue(b, column)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true }));
  };
  for (const body of table.tBodies) body.append(...groupRows(body).sort(order));
}

function filterTable(section) {
  const table = section.querySelector(".results");
  const words = section.querySelector(".filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const keep = section.querySelector('[data-keep][aria-pressed="true"]').dataset.keep;
  const bodies = [...table.tBodies], rows = bodies.flatMap(groupRows);
  for (const row of rows) {
    const name = row.cells[0].dataset.value.toLowerCase();
    row.hidden = !(words.every((word) => name.includes(word)) && (keep === "all" || row.dataset.keeps === keep));
  }
  for (const body of bodies) body.hidden = groupRows(body).every((row) => row.hidden);
  const visible = rows.filter((row) => !row.hidden).length;
  section.querySelector(".count").textContent = visible === rows.length ? "" : `${visible} of ${rows.length} shown`;
}

function setUpTable(section) {
  const table = section.querySelector(".results");
  if (!table) return;
  setUpSorting(section, table);
  setUpFilter(section);
}

function setUpSorting(section, table) {
  const [sorted, before] = kept(section, "sort") || [];
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => {
      const direction = nextDirection(heading);
      kept(section, "sort", [heading.textContent, direction]);
      sortTable(table, heading, direction);
    });
    if (heading.textContent === sorted) sortTable(table, heading, before);
  }
}

function setUpFilter(section) {
  const field = section.querySelector(".filter"), buttons = [...section.querySelectorAll("[data-keep]")];
  let [words, keep] = kept(section, "filter") || ["", "all"];
  const update = () => {
    buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.keep === keep)));
    kept(section, "filter", [field.value, keep]);
    filterTable(section);
  };
  field.value = words;
  field.addEventListener("input", update);
  buttons.forEach((b) => b.addEventListener("click", () => { keep = b.dataset.keep; update(); }));
  update();
}

function setUpCommands(section) {
  const open = new Set(kept(section, "commands"));
  for (const button of section.querySelectorAll(".show-command")) {
    const row = button.closest("tr").nextElementSibling, { run } = button.dataset;
    const update = () => {
      row.hidden = !open.has(run);
      button.setAttribute("aria-expanded", String(!row.hidden));
      button.textContent = row.hidden ? "Show" : "Hide";
    };
    button.addEventListener("click", () => {
      open.has(run) ? open.delete(run) : open.add(run);
      kept(section, "commands", [...open]);
      update();
    });
    update();
  }
  for (const button of section.querySelectorAll(".copy")) {
    button.addEventListener("click", () => copy(button.previousElementSibling, button));
  }
}

function setUpDetails(section) {
  for (const details of section.querySelectorAll("details")) {
    details.open = kept(section, details.dataset.kept) === true;
    details.addEventListener("toggle", () => kept(section, details.dataset.kept, details.open));
  }
}

async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    // Not allowed for files on disk in some browsers: leave the text selected for the keyboard.
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "Press Ctrl-C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
