"""Tables as Markdown and CSV, and all runs as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence

from nscl.reporting.gather import Run
from nscl.reporting.labels import given_name
from nscl.reporting.streams import stream
from nscl.reporting.tables.notes import notes
from nscl.reporting.tables.provenance import provenance
from nscl.reporting.tables.rows import GROUPS, Cell, Table, TableRow
from nscl.reporting.tables.sentence import sentence
from nscl.results import preset_of_record

_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|"})


def markdown(tables: Iterable[Table]) -> str:
    """All tables as Markdown, columns aligned in the source too."""
    return "\n".join(_markdown(table) for table in tables)


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
        "preset": preset_of_record(str(run.config.get("preset", ""))),
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


def _csv_row(table: Table, row: TableRow, names: Sequence[str]) -> list[object]:
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
    body = _markdown_body(table)
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    lines = [_line(head, widths), "| " + " | ".join(rule) + " |"]
    lines += [_line(line, widths) for line in body]
    title = table.section.title.translate(_MARKDOWN)
    above = "".join(f"{text.translate(_MARKDOWN)}\n\n" for text in (sentence(table), _made(table)))
    below = "".join(f"\n{note}\n" for note in notes(table))
    return f"## {title}\n\n{above}" + "\n".join(lines) + "\n" + below


def _markdown_body(table: Table) -> list[list[str]]:
    """Rows with the best values bold; a line before each group where there are several."""
    body = []
    for name, rows in table.groups.items():
        if len(table.groups) > 1:
            body.append([f"*{GROUPS[name]}*", *[""] * (1 + len(table.columns))])
        body += [
            [row.name.translate(_MARKDOWN), str(row.seeds), *map(_bold, row.cells)] for row in rows
        ]
    return body


def _bold(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.is_best else cell.text


def _made(table: Table) -> str:
    text = "; ".join(provenance(table.section))
    return f"{text[0].upper()}{text[1:]}."


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return "| " + " | ".join(padded) + " |"
