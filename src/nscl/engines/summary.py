"""The final table: every figure as mean ± standard deviation over seeds (no torch)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from nscl.engines.job import Job
from nscl.metrics import Summary, summary
from nscl.results import Result, by_remark, remarks

FIGURES = ("acc", "bwt", "forgetting", "learning_accuracy", "seconds")
HEADS = ("ACC %", "BWT", "forgetting", "learning acc. %", "seconds")
KEEPS_DATA = "*"
FOOTNOTE = "* keeps old data"


@dataclass(frozen=True)
class Row:
    """One variant over its seeds."""

    label: str
    stores: str
    seeds: tuple[int, ...]
    figures: Mapping[str, Summary]
    remarks: tuple[str, ...]  # which further images were used, how many old ones are kept

    @property
    def keeps_data(self) -> bool:
        """Whether the method keeps samples of old tasks, which makes it no fair rival."""
        return self.stores == "data"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        figures = {name: value._asdict() for name, value in self.figures.items()}
        who = {"label": self.label, "stores": self.stores, "seeds": list(self.seeds)}
        return {**who, **figures, "remarks": list(self.remarks)}


def summarise(jobs: Sequence[Job]) -> list[Row]:
    """A row per label, in the plan's order, of the runs that are finished."""
    finished = [(job, job.directory.result()) for job in jobs if job.directory.is_finished]
    labels = dict.fromkeys(job.label for job, _ in finished)
    return [_row(label, [r for job, r in finished if job.label == label]) for label in labels]


def _row(label: str, results: list[Result]) -> Row:
    figures = {name: summary(getattr(r, name) for r in results) for name in FIGURES}
    seeds = tuple(r.seed for r in results)
    return Row(label, results[0].stores, seeds, figures, remarks(results))


def footnotes(rows: Sequence[Row]) -> list[str]:
    """What must stand beside the numbers."""
    star = [FOOTNOTE] if any(row.keeps_data for row in rows) else []
    return star + by_remark((row.label, row.remarks) for row in rows)


def table(rows: Sequence[Row], *, expected: Mapping[str, Mapping[str, Any]] | None = None) -> Table:
    """The rows as a table; with expected figures beside the measured ones where there are any."""
    view = Table(box=None, pad_edge=False)
    view.add_column("", no_wrap=True)
    for head in (*HEADS, *(("expected",) if expected else ()), "seeds"):
        view.add_column(head, justify="right")
    for row in rows:
        name = row.label + (KEEPS_DATA if row.keeps_data else "")
        cells = [_cell(row.figures[f], signed=f == "bwt", whole=f == "seconds") for f in FIGURES]
        cells += [_expected(expected.get(row.label, {}))] if expected else []
        view.add_row(name, *cells, str(len(row.seeds)))
    return view


def _cell(value: Summary, *, signed: bool, whole: bool) -> str:
    digits = 0 if whole and value.mean >= 100 else 2
    mean = f"{value.mean:{'+' if signed else ''}z.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std:.{digits}f}"


def _expected(figures: Mapping[str, Any]) -> str:
    return "  ".join(f"{name.upper()} {value}" for name, value in figures.items())
