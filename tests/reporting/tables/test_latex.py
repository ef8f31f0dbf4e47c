"""Tables as LaTeX: well-formed, and neither wider nor taller than a page."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nscl.reporting import Table, gather, make_table, sections
from nscl.reporting.figures.texts import width
from nscl.reporting.tables.latex import latex
from tests.reporting.making import make_run


def test_latex_is_a_booktabs_table_with_everything_escaped(tmp_path: Path) -> None:
    make_run(tmp_path, "my_own:Method&Co", stores="data")
    (section,) = sections(gather([tmp_path]).runs)
    text = latex([make_table(section)])
    assert r"my\_own:Method\&Co $^\dagger$ & 1 &" in text
    rules = [text.index(f"\\{rule}") for rule in ("toprule", "midrule", "bottomrule")]
    assert rules == sorted(rules)
    body = text[rules[1] : rules[2]].splitlines()[1:-1]
    columns = re.search(r"begin{tabular}{(\w+)}", text)
    assert columns
    assert all(len(re.findall(r"(?<!\\)&", line)) == len(columns[1]) - 1 for line in body)


@pytest.fixture
def wide(tmp_path: Path) -> Table:
    """All columns, with deviations; names of 30 characters, the longest that stand in one line."""
    for seed in (0, 1):
        make_run(tmp_path, "adns", seed, benchmark="split-cifar100-10")
        make_run(tmp_path, "gem", seed, benchmark="split-cifar100-10", stores="data")
        make_run(tmp_path, "ewc", seed, benchmark="split-cifar100-10", label="0123456789" * 3)
    return make_table(sections(gather([tmp_path]).runs)[0])


def tabulars(text: str) -> list[tuple[str, list[list[str]]]]:
    """Columns and rows of every table, cells that span several as often as they do."""
    found = []
    for kinds, body in re.findall(r"begin{tabular}{(.*?)}\n(.*?)\\end{tabular}", text, re.DOTALL):
        rows = [re.split(r"(?<!\\)&", row) for row in body.split(r"\\")[:-1]]
        spans = [[re.search(r"multicolumn{(\d)}", cell) for cell in row] for row in rows]
        widths = [[int(span[1]) if span else 1 for span in row] for row in spans]
        pairs = [zip(*both, strict=True) for both in zip(rows, widths, strict=True)]
        kinds = kinds.replace("@{}", "")
        found.append((kinds, [[c.strip() for c, n in row for _ in range(n)] for row in pairs]))
    return found


def twice(heading: str) -> list[str]:
    """A heading over mean and deviation."""
    return [rf"\multicolumn{{2}}{{c}}{{{heading}}}"] * 2


def test_latex_has_two_tables_with_heads_of_two_rows(wide: Table) -> None:
    text = latex([wide])
    reached, learned = tabulars(text)
    for kinds, rows in (reached, learned):
        assert {len(row) for row in rows} == {len(kinds)}
        assert set(kinds) == {"l", "r"}
        assert len(rows) == 2 + len(wide.rows)
    (_, (above, below, *body)), (_, (names, units, *_)) = reached, learned
    common = r"\multicolumn{2}{c}{Published, full scale}"
    assert [cell.split("\n")[-1].strip() for cell in above] == [
        "Method", "Seeds", *twice("ACC"), *twice("BWT"), common, common
    ]  # fmt: skip
    assert "\\\\\n    \\cmidrule(lr){7-8}\n" in text
    assert below[2:] == [*twice(r"(\%)"), *twice("(points)"), r"ACC (\%)", "BWT (points)"]
    assert names[1::2] == names[2::2] == [
        twice(each)[0] for each in ("Learning acc.", "Forgetting", "Step", "State / model")
    ]  # fmt: skip
    assert units[1::2] == [twice(each)[0] for each in (r"(\%)", "(points)", "(ms)", r"($\times$)")]
    (gem,) = [row for row in body if row[0].endswith(r"gem $^\dagger$")]
    assert gem[0].startswith("\\midrule")
    assert gem[6:] == ["49.48", "+2.77"]
    assert text.count(r"$^\dagger$ keeps samples of old tasks") == 2


def test_latex_without_published_numbers_has_no_heading_for_them(table: Table) -> None:
    text = latex([table])
    assert "Published" not in text
    assert "cmidrule" not in text
    assert [kinds for kinds, _ in tabulars(text)] == ["lrrlrl", "lrlrlrlrl"]


def test_latex_has_means_below_means(wide: Table) -> None:
    """A row of one seed beside rows of several: its number stands where theirs do."""
    one = replace(wide.rows[0], cells=tuple(replace(c, std="") for c in wide.rows[0].cells))
    table = replace(wide, rows=(one, *wide.rows[1:]))
    (kinds, (_, _, *body)), _ = tabulars(latex([table]))
    assert kinds == "lrrlrlrr"
    accs = [row.cells[0] for row in table.rows]
    assert [row[2].removeprefix(r"\textbf{").rstrip("}") for row in body] == [
        acc.mean for acc in accs
    ]
    assert [row[2].startswith(r"\textbf{") for row in body] == [acc.is_best for acc in accs]
    assert any(acc.is_best for acc in accs)
    assert [row[3] for row in body] == ["", *(rf"~$\pm$ {acc.std}" for acc in accs[1:])]


def test_latex_is_never_taller_than_a_page(table: Table) -> None:
    first = table.rows[0]
    label = "adam-nscl (acts_on=displacement, alpha=100, rule=ridge)"  # and a number: three lines
    rows = [replace(first, series=replace(first.series, label=f"{label} {i}")) for i in range(40)]
    text = latex([replace(table, rows=tuple(rows))])
    found = [len(body) - 2 for _, body in tabulars(text)]
    assert found == [10] * 8
    assert text.count("split-digits-5, quick, continued.") == 6


def test_latex_fits_a_text_block(wide: Table) -> None:
    """510 pt, in letters that are wider than those of LaTeX; the whole had 888."""
    for _, rows in tabulars(latex([wide])):
        plain = [[re.sub(r"\\multi.*|\\[a-z]+(?={)?|[$^{}]", "", c) for c in row] for row in rows]
        columns = [max(width(cell, 9.0) for cell in column) for column in zip(*plain, strict=True)]
        assert 72 * sum(columns) + 8 * len(columns) < 510  # more than is: pairs have no gap


@pytest.mark.parametrize(
    ("name", "room"),
    [("instaparam", 345), ("0123456789" * 3, 510), ("one word after another " * 5, 510)],
)
def test_latex_compiles_and_nothing_overflows(
    wide: Table, tmp_path: Path, name: str, room: int
) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here")
    first, *rest = wide.rows
    rows = (replace(first, series=replace(first.series, label=name)), *rest)
    text = latex([replace(wide, rows=rows)]).replace("% \\usepackage", "\\usepackage", 1)
    begin = f"\\setlength{{\\textwidth}}{{{room}pt}}\n\\begin{{document}}\n\\begin{{table}}"
    text = "\\documentclass{article}\n" + text.replace("\\begin{table}", begin, 1)
    (tmp_path / "tables.tex").write_text(text + "\\end{document}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Overfull" not in shown.stdout
