"""Places for names beside markers: beside, above, below, further away; never over one another."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Point = tuple[float, float]


class Box(NamedTuple):
    """A rectangle in inches."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> float:
        """Half way up."""
        return (self.bottom + self.top) / 2

    def meets(self, other: "Box") -> bool:
        """Whether the two have any part in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def holds(self, other: "Box") -> bool:
        """Whether the other is inside."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.bottom <= other.bottom and other.top <= self.top


def placed(
    points: Sequence[Point],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    marker: float,
    obstacles: Sequence[Box] = (),
) -> list[Box | None]:
    """A place for each name of the given size, off all ``obstacles``; None where there is no room.

    Points in a crowd are served first: the others have more places to choose from.

    >>> left, right = placed([(1, 1), (1.1, 1)], [(0.3, 0.1)] * 2, Box(0, 0, 2, 2), 0.05)
    >>> left.right < 1 < 1.1 < right.left
    True
    """
    markers = [Box(x - marker, y - marker, x + marker, y + marker) for x, y in points]
    found: list[Box | None] = [None] * len(points)
    for i in sorted(range(len(points)), key=lambda i: -_crowding(points, i)):
        taken = [*markers[:i], *markers[i + 1 :], *obstacles, *filter(None, found)]
        candidates = _candidates(points[i], sizes[i], marker)
        found[i] = next(
            (c for c in candidates if frame.holds(c) and not any(map(c.meets, taken))), None
        )
    return found


def _crowding(points: Sequence[Point], i: int) -> float:
    x, y = points[i]
    return sum(1.0 / (0.01 + (x - a) ** 2 + (y - b) ** 2) for a, b in points)


def _candidates(point: Point, size: tuple[float, float], marker: float) -> Iterator[Box]:
    """Places around a point, the nearest first; names to the right are the easiest to read."""
    (x, y), (width, height) = point, size
    for away in (marker * 1.2, marker * 2.2):
        up, down = y + away + height / 2, y - away - height / 2
        beside = [(x + away, y), (x - away - width, y)]
        over = [(x - width / 2, up), (x - width / 2, down)]
        corners = [(x + away / 2, up), (x + away / 2, down)]
        corners += [(x - away / 2 - width, up), (x - away / 2 - width, down)]
        for left, middle in (*beside, *over, *corners):
            yield Box(left, middle - height / 2, left + width, middle + height / 2)
