"""Curves of many series: those that stand out have their colours, the others are thin and grey."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from nscl.metrics import Summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.style import FEW, Ink, curve, inks
from nscl.reporting.series import Section, Series

T = TypeVar("T")
THIN, THINNESS = "#b8b8b8", 0.6  # colour and width of what does not stand out
Places = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Member(Generic[T]):
    """One series of a figure, with what is drawn of it."""

    label: str
    ink: Ink
    stands_out: bool
    data: T


@dataclass(frozen=True)
class Crowd(Generic[T]):
    """All series of a figure that have data."""

    members: list[Member[T]]

    def draw_curves(
        self, ax: Axes, first: int, points: Mapping[int, Sequence[Summary]], *,
        most: float = math.inf,
    ) -> None:  # fmt: skip
        """Means and deviations at ``first``, ``first + 1``, ..., by the number of the member."""
        thin = []
        for i, values in points.items():
            x = range(first, first + len(values))
            if self.members[i].stands_out:
                curve(ax, x, values, self.members[i].ink, self.members[i].label, most=most)
            else:
                thin.append([(place, value.mean) for place, value in zip(x, values, strict=True)])
        _thin_lines(ax, thin)

    def draw_lines(self, ax: Axes, places: Mapping[int, Places]) -> None:
        """Lines with a few markers, by the number of the member."""
        for i, line in places.items():
            if line and self.members[i].stands_out:
                every = max(1, len(line) // 8)
                look = self.members[i].ink.line
                ax.plot(*zip(*line, strict=True), markevery=every, clip_on=False, **look)
        others = [line for i, line in places.items() if not self.members[i].stands_out]
        _thin_lines(ax, others)

    def handles(self) -> list[tuple[Any, str]]:
        """What a legend shows: each series that stands out, and one entry for all others."""
        shown = [(Line2D([], [], **m.ink.line), m.label) for m in self.members if m.stands_out]
        rest = len(self.members) - len(shown)
        grey = Line2D([], [], color=THIN, linewidth=THINNESS)
        return [*shown, *([(grey, "1 other" if rest == 1 else f"{rest} others")] if rest else [])]


def crowd(
    section: Section, view: Callable[[Series], T], standing: Sequence[bool] = ()
) -> tuple[Crowd[T], str]:
    """The series that ``view`` has data of, and why the last one without data has none."""
    members, reason = [], "no task is finished"
    outstanding = standing or [True] * len(section.shown)
    for series, ink, stands_out in zip(section.shown, inks(section), outstanding, strict=True):
        try:
            members.append(Member(series.marked, ink, stands_out, view(series)))
        except NoFigureDataError as problem:
            reason = str(problem)
    if len(members) <= FEW:  # of many series few may have this kind of data
        members = [replace(member, stands_out=True) for member in members]
    return Crowd(members), reason


def _thin_lines(ax: Axes, lines: Sequence[Places]) -> None:
    lines = [line for line in lines if line]
    if lines:
        grey = LineCollection(
            [np.array(line) for line in lines], colors=THIN, linewidths=THINNESS, zorder=1
        )
        ax.add_collection(grey)
        ax.autoscale_view()
