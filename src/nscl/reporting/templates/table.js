// The results table: sorted by a click on a heading, filtered by words and by what methods keep.

function cellValue(row, column) {
  return row.cells[column].dataset.value;
}

function sortTable(table, heading) {
  const headings = [...table.tHead.rows[0].cells];
  const column = headings.indexOf(heading);
  const numeric = heading.querySelector("button").dataset.sort === "number";
  const before = heading.getAttribute("aria-sort");
  // The first click shows the largest numbers first, and names from A.
  const first = numeric ? "descending" : "ascending";
  const direction = before === null ? first : before === "ascending" ? "descending" : "ascending";
  headings.forEach((h) => h.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => {
    const [x, y] = [cellValue(a, column), cellValue(b, column)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true }));
  });
  table.tBodies[0].append(...rows);
}

function filterTable(section) {
  const table = section.querySelector(".results");
  const words = section.querySelector(".filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const keep = section.querySelector('[data-keep][aria-pressed="true"]').dataset.keep;
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) {
    const name = row.cells[0].dataset.value.toLowerCase();
    row.hidden = !(words.every((word) => name.includes(word)) && (keep === "all" || row.dataset.keeps === keep));
  }
  const visible = rows.filter((row) => !row.hidden).length;
  section.querySelector(".count").textContent = visible === rows.length ? "" : `${visible} of ${rows.length} shown`;
}

function setUpTable(section) {
  const table = section.querySelector(".results");
  if (!table) return;
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sortTable(table, heading));
  }
  section.querySelector(".filter").addEventListener("input", () => filterTable(section));
  for (const button of section.querySelectorAll("[data-keep]")) {
    button.addEventListener("click", () => {
      section.querySelectorAll("[data-keep]").forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
      filterTable(section);
    });
  }
}

function setUpCommands(section) {
  for (const button of section.querySelectorAll(".show-command")) {
    button.addEventListener("click", () => {
      const row = button.closest("tr").nextElementSibling;
      row.hidden = !row.hidden;
      button.setAttribute("aria-expanded", String(!row.hidden));
      button.textContent = row.hidden ? "Show" : "Hide";
    });
  }
  for (const button of section.querySelectorAll(".copy")) {
    button.addEventListener("click", () => copy(button.previousElementSibling, button));
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
