"""Which values a tuning tries next: one setting after the other, from what was seen so far.

A search knows scores and nothing of runs. It begins in the middle of every axis, tries the learning
rates first, then each strength around the best: its two neighbours, and one value further as often
as an end of what was tried wins. The two best points are then repeated with a second seed.

Everything follows from the scores alone, so a search that was interrupted goes on where it was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

Point = tuple[float, ...]
CLOSE = 1.5  # points of ACC that are chance: within them the smaller loss decides


@dataclass(frozen=True)
class Score:
    """What a trial has reached; a trial that broke down has the worst of both."""

    acc: float = float("-inf")
    bwt: float = float("-inf")


@dataclass(frozen=True)
class Axis:
    """One setting and its values, in order; those of a rate are all tried at once.

    >>> Axis("method.a", (3, 10, 30)).middle
    10
    """

    name: str
    values: tuple[float, ...]
    is_rate: bool = False

    @property
    def middle(self) -> float:
        """Where the search begins."""
        return self.values[(len(self.values) - 1) // 2]

    def beyond(self, value: float, tried: Sequence[float]) -> float | None:
        """The value next to an end of what was tried; past the grid in its last proportion."""
        values, (low, high) = self.values, (min(tried), max(tried))
        if value not in (low, high) or len(values) < 2:
            return None
        inside = [v for v in values if (v < low if value == low else v > high)]
        if inside:
            return inside[-1] if value == low else inside[0]
        if self.is_rate or min(values) <= 0:
            return None
        ratio = values[1] / values[0] if value == low else values[-1] / values[-2]
        return value / ratio if value == low else value * ratio


@dataclass(frozen=True)
class Search:
    """The axes of one method, rates first, and how many points may be tried."""

    axes: tuple[Axis, ...]
    budget: int
    is_valid: Callable[[Point], bool] = lambda point: True  # what a method takes, past its grid

    def next_points(self, scores: Mapping[Point, Score]) -> list[Point]:
        """Points to be tried next, at once; none when the search is over.

        >>> search = Search((Axis("a", (1, 10, 100, 1000, 10000)),), budget=4)
        >>> search.next_points({})
        [(100,), (10,), (1000,)]
        >>> seen = {(100,): Score(50, 0), (10,): Score(40, 0), (1000,): Score(60, 0)}
        >>> search.next_points(seen)
        [(10000,)]
        >>> search.next_points({**seen, (10000,): Score(55, 0)})
        []
        """
        current = tuple(axis.middle for axis in self.axes)
        tried: list[Point] = []
        for index, axis in enumerate(self.axes):
            wanted = self._first(current, index)
            while wanted:
                fresh = [point for point in wanted if point not in tried]
                fresh = fresh[: max(0, self.budget - len(tried))]
                tried += fresh
                if any(point not in scores for point in fresh):
                    return [point for point in fresh if point not in scores]
                line = [p for p in tried if _elsewhere(p, index) == _elsewhere(current, index)]
                current = max(line, key=lambda p: _order(scores[p]))
                further = axis.beyond(current[index], [p[index] for p in line])
                wanted = [] if further is None else [_moved(current, index, further)]
                wanted = [point for point in wanted if fresh and self.is_valid(point)]
        return []

    def _first(self, current: Point, index: int) -> list[Point]:
        axis = self.axes[index]
        if axis.is_rate:
            return [_moved(current, index, value) for value in axis.values]
        place = axis.values.index(axis.middle)
        near = (place, place - 1, place + 1)
        kept = [axis.values[i] for i in near if 0 <= i < len(axis.values)]
        return [_moved(current, index, value) for value in kept]


def to_repeat(scores: Mapping[Point, Score]) -> list[Point]:
    """The two best points, which a second seed decides between.

    >>> to_repeat({(1,): Score(50, -9), (2,): Score(60, -1), (3,): Score(50, -2)})
    [(2,), (3,)]
    """
    return sorted(scores, key=lambda p: _order(scores[p]), reverse=True)[:2]


def choose(scores: Mapping[Point, Sequence[Score]]) -> Point | None:
    """The best mean ACC of those seen with most seeds; within 1.5 points, the best mean BWT.

    >>> choose({(1,): [Score(60, -9), Score(58, -7)], (2,): [Score(59, -1), Score(58, -3)]})
    (2,)
    >>> choose({(1,): [Score(60, -9), Score(60, -7)], (2,): [Score(59, -1), Score(57, -3)]})
    (1,)
    """
    seeds = max(map(len, scores.values()), default=0)
    means = {
        point: Score(fmean(s.acc for s in found), fmean(s.bwt for s in found))
        for point, found in scores.items()
        if len(found) == seeds and all(s.acc > float("-inf") for s in found)
    }
    if not means:
        return None
    best = max(score.acc for score in means.values())
    close = [point for point, score in means.items() if score.acc >= best - CLOSE]
    return max(close, key=lambda p: (means[p].bwt, means[p].acc))


def _order(score: Score) -> tuple[float, float]:
    return score.acc, score.bwt


def _moved(point: Point, index: int, value: float) -> Point:
    return (*point[:index], value, *point[index + 1 :])


def _elsewhere(point: Point, index: int) -> Point:
    return point[:index] + point[index + 1 :]
