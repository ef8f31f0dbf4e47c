"""Tables as Markdown, LaTeX (booktabs) and CSV, and all runs as CSV."""

import csv
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nscl.reporting.gather import Run
from nscl.reporting.labels import given_name
from nscl.reporting.streams import stream
from nscl.reporting.tables import KEEPS_DATA, LEGEND, Cell, Column, Row, Table
from nscl.results import by_remark

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
    KEEPS_DATA: r"$^\dagger$",
}
# What a method reached; the rest has a table of its own, as all of it is wider than a page.
_REACHED = ("acc", "bwt", "published_acc", "published_bwt")
_LONG_NAME = 30  # characters that leave the numbers their room
_MOST_LINES = 32  # that a page has room for, below a caption
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|"})


def markdown(tables: Iterable[Table]) -> str:
    """All tables as Markdown, columns aligned in the source too."""
    return "\n".join(_markdown(table) for table in tables)


def latex(tables: Iterable[Table]) -> str:
    r"""All tables for ``\usepackage{booktabs}``."""
    return "% \\usepackage{booktabs}\n\n" + "\n".join(_latex(table) for table in tables)


def csv_tables(tables: Iterable[Table]) -> str:
    """All tables as one CSV file: full precision, one row per section and series."""
    tables = list(tables)
    columns = list({c.key: c for table in tables for c in table.columns}.values())
    names = [n for c in columns for n in ((c.key,) if c.published else (c.key, f"{c.key}_std"))]
    who = ["benchmark", "preset", "stream", "method", "label", "stores", "seeds"]
    head = [*who, *names, "remarks"]
    return _csv(head, (_csv_row(table, row, names) for table in tables for row in table.rows))


def csv_runs(runs: Iterable[Run]) -> str:
    """Every run with its own figures."""
    head = [
        "run", "benchmark", "preset", "stream", "method", "label", "seed", "finished", "tasks",
        "acc", "bwt", "forgetting", "learning_accuracy", "seconds", "seconds_per_step", "steps",
        "peak_memory_bytes", "state_bytes", "model_bytes",
    ]  # fmt: skip
    return _csv(head, (_run_row(run, head) for run in runs))


def _run_row(run: Run, head: Sequence[str]) -> list[object]:
    known = {
        "run": run.name,
        "preset": run.config.get("preset"),
        "stream": stream(run.config),
        "label": given_name([run]),
        "finished": run.finished,
        "tasks": run.accuracy.tasks,
    }
    source = run.result or run
    return [known.get(name, getattr(source, name, None)) for name in head]


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return buffer.getvalue()


def _csv_row(table: Table, row: Row, names: Sequence[str]) -> list[object]:
    numbers: dict[str, float | None] = {}
    for column, cell in zip(table.columns, row.cells, strict=True):
        if cell.value is not None:
            numbers[column.key] = cell.value.mean
            numbers[f"{column.key}_std"] = cell.value.std
    section, series = table.section, row.series
    place = [section.benchmark, section.preset, section.stream]
    who = [*place, series.method, series.label, series.stores, row.seeds]
    return [*who, *(numbers.get(name) for name in names), "; ".join(series.remarks)]


def _markdown(table: Table) -> str:
    head = ["Method", "Seeds", *(c.title for c in table.columns)]
    body = [
        [row.name.translate(_MARKDOWN), str(row.seeds), *(cell.text for cell in row.cells)]
        for row in table.rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    lines = [_line(head, widths), "| " + " | ".join(rule) + " |"]
    lines += [_line(line, widths) for line in body]
    title = table.section.title.translate(_MARKDOWN)
    return f"## {title}\n\n" + "\n".join(lines) + "\n" + "".join(f"\n{n}\n" for n in notes(table))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return "| " + " | ".join(padded) + " |"


def notes(table: Table) -> list[str]:
    """What a reader of the table must know."""
    told = _signs(table)
    if table.sources:
        told.append(
            "Published numbers are full-scale results of others, not of these runs: "
            + "; ".join(table.sources)
            + "."
        )
    if table.section.unlike:
        told.append(f"Not alike in all rows: {', '.join(table.section.unlike)}.")
    if table.section.unless_said:
        told.append(f"Unless said: {'; '.join(table.section.unless_said)}.")
    noted = by_remark((row.series.label, row.series.remarks) for row in table.rows)
    return told + [f"{line[0].upper()}{line[1:]}." for line in noted]


def _signs(table: Table) -> list[str]:
    told = [LEGEND] if table.marks_data else []
    if any(row.seeds > 1 for row in table.rows):
        told.append("Mean ± sample standard deviation over seeds.")
    return told


def _latex(table: Table) -> str:
    places = range(len(table.columns))
    reached = [i for i in places if table.columns[i].key in _REACHED]
    rest = [i for i in places if i not in reached]
    title = table.section.title
    first = " ".join([f"{title}.", *notes(table)])
    second = " ".join([f"{title}: how tasks were learned, and at what cost.", *_signs(table)])
    tables = []
    for caption, shown, seeds in ((first, reached, True), (second, rest, False)):
        for i, part in enumerate(_pages(table)):
            told = f"{title}, continued." if i else caption
            tables.append(_latex_table(part, told, shown, seeds=seeds))
    return "\n".join(tables)


def _pages(table: Table) -> Iterator[Table]:
    """The table in parts of which none is taller than a page."""
    rows: list[Row] = []
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
    body = "\n".join(f"    {' & '.join(line)} \\\\" for line in lines)
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


def _latex_cells(cells: Sequence[Cell], shown: Sequence[int], spread: set[int]) -> Iterator[str]:
    """Means below means: deviations have a column of their own, beside those that have one."""
    for i in shown:
        yield _tex(cells[i].mean)
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
