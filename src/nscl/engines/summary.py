"""The final table: every figure as mean ± standard deviation over seeds (no torch)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from nscl.engines.display.text import shorten_distinct
from nscl.engines.job import Job
from nscl.metrics import Summary, summary
from nscl.results import Result, by_remark, remarks

FIGURES = ("acc", "bwt", "forgetting", "learning_accuracy", "seconds")
HEADS = ("ACC %", "BWT", "forgetting", "learning acc. %", "seconds")
EXPENDABLE = ("seconds", "learning acc. %", "forgetting", "expected")  # dropped in this order
LAST = ("seeds", "BWT")  # dropped where not even a short label fits beside them
LABEL, SHORT_LABEL = 30, 12  # least widths of a longer label: before columns go, and before LAST go
GAP = 2  # between columns
STAR = "*"
FOOTNOTE = f"{STAR} keeps old data"


@dataclass(frozen=True)
class SummaryRow:
    """One variant over its seeds."""

    label: str
    stores: str
    seeds: tuple[int, ...]
    figures: Mapping[str, Summary]
    remarks: tuple[str, ...]  # which further images were used, how many old ones are kept

    @property
    def keeps_data(self) -> bool:
        """Whether the method keeps samples of old tasks, so that it is not a fair comparison."""
        return self.stores == "data"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        figures = {name: value._asdict() for name, value in self.figures.items()}
        who = {"label": self.label, "stores": self.stores, "seeds": list(self.seeds)}
        return {**who, **figures, "remarks": list(self.remarks)}


def summarise(jobs: Sequence[Job]) -> list[SummaryRow]:
    """A row per label, in the plan's order, of the runs whose result can be read."""
    finished = [(job, result) for job in jobs if (result := job.result()) is not None]
    labels = dict.fromkeys(job.label for job, _ in finished)
    return [_row(label, [r for job, r in finished if job.label == label]) for label in labels]


def _row(label: str, results: list[Result]) -> SummaryRow:
    figures = {name: summary(getattr(r, name) for r in results) for name in FIGURES}
    seeds = tuple(r.seed for r in results)
    return SummaryRow(label, results[0].stores, seeds, figures, remarks(results))


def footnotes(rows: Sequence[SummaryRow]) -> list[str]:
    """Notes that belong to the numbers."""
    star = [FOOTNOTE] if any(row.keeps_data for row in rows) else []
    return star + by_remark((row.label, row.remarks) for row in rows)


def table(
    rows: Sequence[SummaryRow],
    *,
    expected: Mapping[str, Mapping[str, Any]] | None = None,
    width: int | None = None,
) -> Table:
    """The rows as a table; with expected figures beside the measured ones where there are any.

    Where ``width`` is too small, the least important figures are left out and long labels are
    shortened; figures are never cut.
    """
    columns = fitted_columns(_columns(rows, expected or {}), width)
    view = Table(box=None, pad_edge=False)
    for head in columns:
        view.add_column(head, justify="right" if head else "left", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        view.add_row(*map(Text, cells))  # as texts: "[a=30]" in a name of a plan is not markup
    return view


def _columns(
    rows: Sequence[SummaryRow], expected: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    columns = {"": [row.label + (STAR if row.keeps_data else "") for row in rows]}
    for name, head in zip(FIGURES, HEADS, strict=True):
        style = {"signed": name == "bwt", "rounded": name == "seconds"}
        columns[head] = [_cell(row.figures[name], **style) for row in rows]
    if expected:
        columns["expected"] = [_expected(expected.get(row.label, {})) for row in rows]
    return {**columns, "seeds": [str(len(row.seeds)) for row in rows]}


def fitted_columns(columns: Mapping[str, list[str]], width: int | None) -> dict[str, list[str]]:
    """The columns that fit side by side: long labels shrink first, then columns go.

    >>> names, acc = ["Ridge, norms free"], ["97.40 ± 0.20"]
    >>> fitted_columns({"": names, "ACC %": acc, "seconds": ["12.50"]}, 27)
    {'': ['Ridge,…s free'], 'ACC %': ['97.40 ± 0.20']}
    """
    shown = dict(columns)
    if width is None:
        return shown
    longest = max(map(len, columns[""]), default=0)
    for least, heads in ((LABEL, EXPENDABLE), (SHORT_LABEL, LAST)):
        for head in heads:
            if _label_width(shown, width) < min(least, longest):
                shown.pop(head, None)
    return {**shown, "": shorten_distinct(columns[""], _label_width(shown, width))}


def _label_width(columns: Mapping[str, list[str]], width: int) -> int:
    """The width that the figures leave for labels."""
    figures = [(head, *cells) for head, cells in columns.items() if head]
    return width - sum(max(map(len, texts)) + GAP for texts in figures)


def _cell(value: Summary, *, signed: bool, rounded: bool) -> str:
    digits = 0 if rounded and value.mean >= 100 else 2
    mean = f"{value.mean:{'+' if signed else ''}z.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std:.{digits}f}"


def _expected(figures: Mapping[str, Any]) -> str:
    return "  ".join(f"{name.upper()} {value}" for name, value in figures.items())
