"""Tables as Markdown, LaTeX (booktabs) and CSV, and all runs as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence

from nscl.reporting.gather import Run
from nscl.reporting.labels import given_name
from nscl.reporting.streams import stream
from nscl.reporting.tables import KEEPS_DATA, LEGEND, Row, Table
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
    told = [LEGEND] if table.marks_data else []
    if any(row.seeds > 1 for row in table.rows):
        told.append("Mean ± sample standard deviation over seeds.")
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


def _latex(table: Table) -> str:
    head = ["Method", "Seeds", *(c.title for c in table.columns)]
    lines = [[_tex(row.name), str(row.seeds), *(_tex(c.text) for c in row.cells)] for row in
             table.rows]  # fmt: skip
    body = "\n".join(f"    {' & '.join(line)} \\\\" for line in lines)
    caption = " ".join([f"{table.section.title}.", *notes(table)])
    return (
        "\\begin{table}\n  \\centering\n"
        f"  \\caption{{{_tex(caption)}}}\n"
        f"  \\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}\n    \\toprule\n"
        f"    {' & '.join(map(_tex, head))} \\\\\n    \\midrule\n"
        f"{body}\n    \\bottomrule\n  \\end{{tabular}}\n\\end{{table}}\n"
    )


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
