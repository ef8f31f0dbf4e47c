"""Which figures a section has, and what each is drawn from; matplotlib is not needed for that."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nscl.reporting.plot_data.missing import LeftOut, spectra_of, with_spectra
from nscl.reporting.plot_data.selection import standing_out
from nscl.reporting.plot_data.sweeps import sweeps, together
from nscl.reporting.series import Section, Series
from nscl.results import slug

MOST_SPECTRA = 6  # series of a section of which spectra are drawn
MOST_NUMBERED = 12  # tasks up to which the cells of a matrix have numbers in them
_CROWDED = ("acc_after_task", "task_accuracy", "training_loss", "step_time", "old_losses")
_OF_A_SECTION = (
    "acc_after_task",
    "task_accuracy",
    "acc_bwt",
    "training_loss",
    "step_time",
    "old_losses",
)


@dataclass(frozen=True)
class Plan:
    """A figure to be drawn: its name, the function that draws it, and the function's arguments.

    The function is named and not referred to, so that a plan travels to other processes and can be
    made without matplotlib.
    """

    name: str
    function: str
    arguments: tuple[Any, ...]


def plans(section: Section, missing: set[str], highlight: Sequence[str] = ()) -> Iterator[Plan]:
    """The plans of all figures that are not ``missing``.

    ``highlight`` names rows or methods whose curves stand out where there are many.
    """
    standing = tuple(standing_out(section, highlight))
    for page in range(_matrix_pages(section) if "accuracy-matrix" not in missing else 0):
        tail = f"-{page + 1}" if page else ""
        yield Plan(f"accuracy-matrix{tail}", "accuracy_matrix", (section, page))
    for function in _OF_A_SECTION:
        name = function.replace("_", "-")
        if name not in missing:
            yield Plan(name, function, (section, standing) if function in _CROWDED else (section,))
    if "sweep" not in missing:
        for found in together(sweeps(section)):
            name = f"sweep-{slug(found[0].method)}-{slug(found[0].option)}"
            yield Plan(name, "sweep", (found,))
    for i, series in enumerate(_first_of_each(_readable(section, missing))):
        # Long labels are cut, and two of them may be alike then.
        tail = f"{i + 1}-{slug(series.label)}"
        yield Plan(f"singular-values-{tail}", "singular_values", (series,))
        yield Plan(f"residual-energy-{tail}", "layer_map", (series, "share"))
        yield Plan(f"free-directions-{tail}", "layer_map", (series, "free"))


def not_drawn(section: Section, missing: set[str]) -> Iterator[LeftOut]:
    """Spectra beyond those of the first series."""
    rest = len(_readable(section, missing)) - MOST_SPECTRA
    if rest > 0:
        reason = f"spectra of {MOST_SPECTRA} series are drawn; those of all are on the page"
        yield LeftOut(f"singular-values of {rest} more series", reason)


def matrices_of_a_page(tasks: int) -> int:
    """How many accuracy matrices a page holds: numbers in many cells need wider ones."""
    return 15 if 8 < tasks <= MOST_NUMBERED else 20


def _matrix_pages(section: Section) -> int:
    """How many figures the accuracy matrices of a section make, none of them taller than a page."""
    return math.ceil(len(section.shown) / matrices_of_a_page(section.tasks))


def _readable(section: Section, missing: set[str]) -> list[Series]:
    return [series for series in with_spectra(section) if spectra_of(series) not in missing]


def _first_of_each(found: list[Series]) -> list[Series]:
    """The series of which spectra are drawn: the first of every method before any second one."""
    seen = Counter[str]()
    turns = []
    for place, series in enumerate(found):
        turns.append((seen[series.method], place))
        seen[series.method] += 1
    return [found[place] for place in sorted(place for _, place in sorted(turns)[:MOST_SPECTRA])]
