"""The paper's tables as data: one row per series, ACC and BWT as mean and deviation over seeds.

Rows stand in groups, each in the order of ACC: methods without old data, methods that keep it, and
two that do not learn one network task by task. In the first two groups the best value of each
column is marked, except BWT and forgetting of a row that learned a task no better than chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nscl.metrics import Summary
from nscl.reporting.series import Section, Series
from nscl.reporting.tables.columns import COLUMNS, Column, comparable
from nscl.reporting.tables.timing import times_are_shown

DAGGER = "†"
LEGEND = f"{DAGGER} keeps samples of old tasks."
NOTHING = "–"
#: Groups of rows in their order, and what they are called.
GROUPS = {
    "without": "without old data",
    "with": "keep samples of old tasks",
    "bounds": "for comparison: a network per task, or all data at once",
}
BOUNDS = ("independent", "joint")
GroupName = Literal["without", "with", "bounds"]


@dataclass(frozen=True)
class Cell:
    """One entry: the numbers, and the text in two parts so that columns can be aligned."""

    value: Summary | None
    mean: str
    std: str
    is_best: bool = False

    @property
    def text(self) -> str:
        """``71.20 ± 0.31``; without deviation for one seed."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


@dataclass(frozen=True)
class TableRow:
    """A series in the table."""

    series: Series
    keeps_data: bool
    seeds: int
    cells: tuple[Cell, ...]

    @property
    def group(self) -> GroupName:
        """What it may be compared with."""
        if self.series.method in BOUNDS:
            return "bounds"
        return "with" if self.keeps_data else "without"

    @property
    def acc(self) -> float:
        """What rows are sorted by."""
        value = self.cells[0].value
        return value.mean if value else float("-inf")

    @property
    def name(self) -> str:
        """The method, marked if it keeps old data."""
        return f"{self.series.label} {DAGGER}" if self.keeps_data else self.series.label

    def places(self, table: "Table") -> list[tuple[Column, Cell, int]]:
        """Cells beside their columns and the characters a deviation needs in each."""
        widths = [max(len(row.cells[i].std) for row in table.rows) for i in range(len(self.cells))]
        return [
            (column, cell, width + 2 if width else 0)
            for column, cell, width in zip(table.columns, self.cells, widths, strict=True)
        ]


@dataclass(frozen=True)
class Table:
    """One section's table; ``sources`` are the publications behind the published columns."""

    section: Section
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    sources: tuple[str, ...]

    @property
    def marks_data(self) -> bool:
        """Whether any row needs the legend."""
        return any(row.keeps_data for row in self.rows)

    @property
    def groups(self) -> dict[str, tuple[TableRow, ...]]:
        """The rows that stand together, by the name of their group."""
        found = {n: tuple(row for row in self.rows if row.group == n) for n in GROUPS}
        return {name: rows for name, rows in found.items() if rows}


def make_table(section: Section) -> Table:
    """Tabulate the finished runs of a section."""
    finished = [series for series in section.series if series.finished]
    others = [comparable(section, series) for series in finished]
    hidden = {*(() if any(others) else ("published_acc", "published_bwt"))}
    hidden |= set() if times_are_shown(finished) else {"ms_per_step"}
    columns = tuple(column for column in COLUMNS if column.key not in hidden)
    rows = [_row(section, series, columns) for series in finished]
    sources = tuple(dict.fromkeys(each.source for each in others if each))
    return Table(section, columns, tuple(_sorted(rows, columns)), sources)


def _sorted(rows: Sequence[TableRow], columns: Sequence[Column]) -> list[TableRow]:
    """Group by group, the highest ACC first; equal ones stay in the section's order."""
    found: list[TableRow] = []
    for name in GROUPS:
        group = sorted((row for row in rows if row.group == name), key=lambda row: -row.acc)
        found += group if name == "bounds" else _marked(group, columns)
    return found


def _marked(rows: Sequence[TableRow], columns: Sequence[Column]) -> list[TableRow]:
    """The best of every column marked: all rows that print it, unless every row does."""
    texts = [
        _best(column, [row.cells[i] for row in rows if _counts(row, column)])
        for i, column in enumerate(columns)
    ]
    return [
        replace(
            row,
            cells=tuple(
                replace(cell, is_best=_counts(row, column) and cell.mean == text)
                for cell, column, text in zip(row.cells, columns, texts, strict=True)
            ),
        )
        for row in rows
    ]


def _counts(row: TableRow, column: Column) -> bool:
    """Whether a row's value may be the best: what was never learned cannot be forgotten."""
    return not (column.of_what_was_learned and row.series.has_unlearned_tasks)


def _best(column: Column, cells: Sequence[Cell]) -> str | None:
    known = [cell for cell in cells if cell.value is not None]
    if len({cell.mean for cell in known}) < 2:
        return None
    sign = 1.0 if column.best == "largest" else -1.0
    return max(known, key=lambda cell: sign * cell.value.mean if cell.value else 0.0).mean


def _row(section: Section, series: Series, columns: tuple[Column, ...]) -> TableRow:
    return TableRow(
        series=series,
        keeps_data=series.stores == "data",
        seeds=len(series.finished),
        cells=tuple(_cell(column, column.value(section, series)) for column in columns),
    )


def _cell(column: Column, value: Summary | None) -> Cell:
    if value is None:
        return Cell(None, NOTHING, "")
    std = "" if value.std is None else f"{value.std:.{column.digits}f}"
    return Cell(value, column.text(value.mean), std)
