"""Tables as LaTeX (booktabs), two per section, none wider or taller than a page."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nscl.reporting.tables.columns import Column
from nscl.reporting.tables.notes import notes, signs
from nscl.reporting.tables.rows import DAGGER, Cell, Table, TableRow

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    DAGGER: r"$^\dagger$",
}
# Results; the other columns have a second table, as all of them are wider than a page.
_REACHED = ("acc", "bwt", "published_acc", "published_bwt")
_LONG_NAME = 30  # characters; longer names are broken into lines
_MOST_LINES = 32  # that fit on a page, below a caption


def latex(tables: Iterable[Table]) -> str:
    r"""All tables for ``\usepackage{booktabs}``."""
    return "% \\usepackage{booktabs}\n\n" + "\n".join(_latex(table) for table in tables)


def _latex(table: Table) -> str:
    places = range(len(table.columns))
    reached = [i for i in places if table.columns[i].key in _REACHED]
    rest = [i for i in places if i not in reached]
    title = table.section.title
    first = " ".join([f"{title}.", *notes(table)])
    second = " ".join([f"{title}: how tasks were learned, and at what cost.", *signs(table)])
    tables = []
    for caption, shown, seeds in ((first, reached, True), (second, rest, False)):
        for i, part in enumerate(_pages(table)):
            heading = f"{title}, continued." if i else caption
            tables.append(_latex_table(part, heading, shown, seeds=seeds))
    return "\n".join(tables)


def _pages(table: Table) -> Iterator[Table]:
    """The table in parts of which none is taller than a page."""
    rows: list[TableRow] = []
    lines = 0
    for row in table.rows:
        height = len(textwrap.wrap(row.name, _LONG_NAME))
        if rows and lines + height > _MOST_LINES:
            yield replace(table, rows=tuple(rows))
            rows, lines = [], 0
        rows.append(row)
        lines += height
    yield replace(table, rows=tuple(rows))


def _latex_table(table: Table, caption: str, shown: Sequence[int], *, seeds: bool) -> str:
    names, wide = _latex_names(table)
    spread = {i for i in shown if any(row.cells[i].std for row in table.rows)}
    lines = [
        [name, *([str(row.seeds)] if seeds else []), *(_latex_cells(row.cells, shown, spread))]
        for name, row in zip(names, table.rows, strict=True)
    ]
    body = "\n".join(_latex_lines(table, lines))
    head = _latex_head(
        [(table.columns[i], i in spread) for i in shown], ["Method", "Seeds"][: 1 + seeds]
    )
    kinds = "".join(["r" * seeds, *("r@{}l" if i in spread else "r" for i in shown)])
    return (
        "\\begin{table}\n  \\centering\n  \\small\n  \\setlength{\\tabcolsep}{4pt}\n"
        f"  \\caption{{{_tex(caption)}}}\n"
        f"  \\begin{{tabular}}{{{wide}{kinds}}}\n    \\toprule\n"
        f"{head}    \\midrule\n"
        f"{body}\n    \\bottomrule\n  \\end{{tabular}}\n\\end{{table}}\n"
    )


def _latex_lines(table: Table, lines: Sequence[list[str]]) -> Iterator[str]:
    """The rows, with a rule between groups."""
    for i, line in enumerate(lines):
        if i and table.rows[i].group != table.rows[i - 1].group:
            yield "    \\midrule"
        yield f"    {' & '.join(line)} \\\\"


def _latex_cells(cells: Sequence[Cell], shown: Sequence[int], spread: set[int]) -> Iterator[str]:
    """Means below means: deviations have a column of their own, beside those that have one."""
    for i in shown:
        mean = _tex(cells[i].mean)
        yield rf"\textbf{{{mean}}}" if cells[i].is_best else mean
        if i in spread:
            yield rf"~$\pm$ {cells[i].std}" if cells[i].std else ""


def _latex_names(table: Table) -> tuple[list[str], str]:
    """The first column and its kind: names of many options are broken into lines."""
    names = [_tex(row.name) for row in table.rows]
    if all(len(row.name) <= _LONG_NAME for row in table.rows):
        return names, "l"
    return [rf"\raggedright {name}" for name in names], "p{13em}"


def _latex_head(columns: Sequence[tuple[Column, bool]], who: Sequence[str]) -> str:
    """Headings and below them units; the published columns, the last ones, share a heading."""
    above, below = [*who], [""] * len(who)
    for column, spread in columns:
        unit = f"({_tex(column.unit)})"
        above += [] if column.published else [_over(_tex(column.name), spread=spread)]
        below.append(
            f"{_tex(column.name)} {unit}" if column.published else _over(unit, spread=spread)
        )
    rule, published = "", sum(column.published for column, _ in columns)
    if published:
        above.append(rf"\multicolumn{{{published}}}{{c}}{{Published, full scale}}")
        last = len(below) + sum(spread for _, spread in columns)
        rule = f"    \\cmidrule(lr){{{last - published + 1}-{last}}}\n"
    return f"    {' & '.join(above)} \\\\\n{rule}    {' & '.join(below)} \\\\\n"


def _over(heading: str, *, spread: bool) -> str:
    """A heading over a mean, and over its deviation if there is one."""
    return rf"\multicolumn{{2}}{{c}}{{{heading}}}" if spread else heading


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
