"""The paper's tables as data: one row per series, ACC and BWT as mean and deviation over seeds."""

from collections.abc import Callable
from dataclasses import dataclass

from nscl.metrics import Summary
from nscl.reporting.published import Published, published
from nscl.reporting.series import Section, Series

KEEPS_DATA = "†"
LEGEND = f"{KEEPS_DATA} keeps samples of old tasks."
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """What a column shows: its name in CSV, what it is called, its unit and its digits."""

    key: str
    name: str
    unit: str
    digits: int
    value: Callable[[Section, Series], Summary | None]
    hint: str
    signed: bool = False
    published: bool = False

    @property
    def heading(self) -> str:
        """What is called so; what was published says that it is none of ours."""
        return f"Published {self.name}, full scale" if self.published else self.name

    @property
    def title(self) -> str:
        """Heading with unit, in one line."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading

    def text(self, value: float) -> str:
        """The number as it is printed, with a true minus sign."""
        rounded = round(value, self.digits) + 0.0  # no "-0.00"
        sign = "+" if self.signed and rounded else ""
        return f"{rounded:{sign}.{self.digits}f}".replace("-", "−")


@dataclass(frozen=True)
class Cell:
    """One entry: the numbers, and the text in two parts so that columns can be aligned."""

    value: Summary | None
    mean: str
    std: str

    @property
    def text(self) -> str:
        """``71.20 ± 0.31``; without deviation for one seed."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


@dataclass(frozen=True)
class Row:
    """A series in the table."""

    series: Series
    keeps_data: bool
    seeds: int
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """The method, marked if it keeps old data."""
        return f"{self.series.label} {KEEPS_DATA}" if self.keeps_data else self.series.label

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
    rows: tuple[Row, ...]
    sources: tuple[str, ...]

    @property
    def marks_data(self) -> bool:
        """Whether any row needs the legend."""
        return any(row.keeps_data for row in self.rows)


def make_table(section: Section) -> Table:
    """Tabulate the finished runs of a section."""
    finished = [series for series in section.series if series.finished]
    told = [_comparable(section, series) for series in finished]
    columns = tuple(c for c in COLUMNS if not c.published or any(told))
    rows = tuple(_row(section, series, columns) for series in finished)
    sources = tuple(dict.fromkeys(each.source for each in told if each))
    return Table(section, columns, rows, sources)


def _row(section: Section, series: Series, columns: tuple[Column, ...]) -> Row:
    return Row(
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


def _figure(name: str, factor: float = 1.0) -> Callable[[Section, Series], Summary | None]:
    def value(_: Section, series: Series) -> Summary | None:
        found = series.figure(name)
        if found is None:
            return None
        return Summary(found.mean * factor, None if found.std is None else found.std * factor)

    return value


def _comparable(section: Section, series: Series) -> Published | None:
    """What was published is about whole streams, in the benchmark's own order and scenario."""
    return None if section.stream else published(section.benchmark, series.method)


def _published(name: str) -> Callable[[Section, Series], Summary | None]:
    def value(section: Section, series: Series) -> Summary | None:
        found = _comparable(section, series)
        return Summary(getattr(found, name), None) if found else None

    return value


COLUMNS = (
    Column("acc", "ACC", "%", 2, _figure("acc"), "average accuracy over all tasks at the end"),
    Column(
        "bwt", "BWT", "points", 2, _figure("bwt"),
        "backward transfer: what later tasks did to earlier ones; negative is forgetting",
        signed=True,
    ),
    Column(
        "published_acc", "ACC", "%", 2, _published("acc"),
        "as published, with the full-size network and training: not from these runs",
        published=True,
    ),
    Column(
        "published_bwt", "BWT", "points", 2, _published("bwt"),
        "as published, with the full-size network and training: not from these runs",
        signed=True, published=True,
    ),
    Column(
        "learning_accuracy", "Learning acc.", "%", 2, _figure("learning_accuracy"),
        "average accuracy of each task right after it was learned",
    ),
    Column(
        "forgetting", "Forgetting", "points", 2, _figure("forgetting"),
        "best accuracy before the last task minus the final one, averaged over old tasks",
    ),
    Column(
        "ms_per_step", "Step", "ms", 2, _figure("seconds_per_step", 1000.0),
        "mean time of a training step on the machine of the run",
    ),
    Column(
        "memory_ratio", "State / model", "×", 2, lambda _, series: series.memory_ratio(),
        "bytes kept between tasks relative to the network: the paper's memory ratio",
    ),
)  # fmt: skip
