"""The columns of tables: what they are called, how a value is found, and which end is better."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nscl.metrics import Summary
from nscl.reporting.series import Section, Series
from nscl.reporting.tables.published import Published, published


@dataclass(frozen=True)
class Column:
    """A column: its key in CSV, its name, unit and digits, and how its value is found."""

    key: str
    name: str
    unit: str
    digits: int
    value: Callable[[Section, Series], Summary | None]
    hint: str
    signed: bool = False
    published: bool = False
    best: Literal["largest", "smallest"] = "largest"
    of_what_was_learned: bool = False  # means nothing where a task was not learned

    @property
    def heading(self) -> str:
        """The name; published columns are marked as results of others."""
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


def _figure(name: str, factor: float = 1.0) -> Callable[[Section, Series], Summary | None]:
    def value(_: Section, series: Series) -> Summary | None:
        found = series.figure(name)
        if found is None:
            return None
        return Summary(found.mean * factor, None if found.std is None else found.std * factor)

    return value


def comparable(section: Section, series: Series) -> Published | None:
    """The published pair; it holds for complete streams in the benchmark's order and scenario."""
    return None if section.stream else published(section.benchmark, series.method)


def _published(name: str) -> Callable[[Section, Series], Summary | None]:
    def value(section: Section, series: Series) -> Summary | None:
        found = comparable(section, series)
        return Summary(getattr(found, name), None) if found else None

    return value


COLUMNS = (
    Column("acc", "ACC", "%", 2, _figure("acc"), "average accuracy over all tasks at the end"),
    Column(
        "bwt", "BWT", "points", 2, _figure("bwt"),
        "backward transfer: what later tasks did to earlier ones; negative is forgetting",
        signed=True, of_what_was_learned=True,
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
        best="smallest", of_what_was_learned=True,
    ),
    Column(
        "ms_per_step", "Step", "ms", 2, _figure("seconds_per_step", 1000.0),
        "mean time of a training step on the machine of the run",
        best="smallest",
    ),
    Column(
        "memory_ratio", "State / model", "×", 2, lambda _, series: series.memory_ratio(),
        "bytes kept between tasks relative to the network: the paper's memory ratio",
        best="smallest",
    ),
)  # fmt: skip
