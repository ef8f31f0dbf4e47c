"""Cells of heat maps: their numbers as text, and the range of values that the colours span."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from math import ceil, floor

import numpy as np

# Share of the colour map (cividis) from which black letters are easier to read than white ones:
# there its relative luminance (WCAG) passes 0.179.
LIGHT = 0.468
TAIL = 0.05  # share of all values at either end that a clipped scale may leave out
WORTH = 0.85  # of the whole range: a scale that is hardly shorter is not clipped


def cell_text(value: float, digits: int) -> str:
    """The number in a cell: few digits, an exponent for what they would round to zero.

    >>> cell_text(62.5, 0), cell_text(0.125, 2), cell_text(0.00004, 2)
    ('63', '0.13', '4e-5')
    """
    small = digits and 0 < value < 0.5 * 10**-digits
    if small:
        return f"{value:.0e}".replace("e-0", "e-")
    # Half up, as readers expect: Python's own rule makes 62.5 the even 62.
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def spread(values: Iterable[float]) -> tuple[float, float]:
    """The integers around all values, at least one apart.

    >>> spread([61.2, 98.7])
    (61.0, 99.0)
    """
    values = list(values)
    low = floor(min(values))
    return float(low), float(max(ceil(max(values)), low + 1))


@dataclass(frozen=True)
class Span:
    """The values that the colours of a linear scale span; what lies beyond has the end's colour."""

    low: float
    high: float
    below: bool = False  # whether any value lies beyond the end
    above: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        """What stands at the ends of the legend.

        >>> Span(31.0, 70.0, below=True).ends
        ('≤ 31', '70')
        """
        low, high = f"{self.low:.0f}", f"{self.high:.0f}"
        return (f"≤ {low}" if self.below else low), (f"≥ {high}" if self.above else high)


def clipped(values: Iterable[float]) -> Span:
    """The integers around most values, so that one failed run does not take half of the colours.

    A clipped scale leaves out a twentieth of the values at either end, and what is further from
    the middle half of all values than that half is wide: a fifth of failed runs is left out too.

    >>> clipped([50.0, 52.0, 54.0, 56.0, 58.0, 60.0, 10.0]).ends
    ('≤ 45', '60')
    """
    values = list(values)
    low, high = spread(values)
    near_low, near_high = _most(values, low, high)
    if near_high - near_low > WORTH * (high - low):
        return Span(low, high)
    return Span(near_low, near_high, below=min(values) < near_low, above=max(values) > near_high)


def _most(values: Sequence[float], low: float, high: float) -> tuple[float, float]:
    quarter, three = np.quantile(values, [0.25, 0.75])
    least, most = np.quantile(values, [TAIL, 1 - TAIL]) if len(values) >= 1 / TAIL else (low, high)
    reach = three - quarter
    bottom = floor(max(least, quarter - reach, low))
    return float(bottom), float(max(ceil(min(most, three + reach, high)), bottom + 1))


def decades(values: Iterable[float]) -> tuple[float, float]:
    """From the smallest positive value to the largest: one decade at least, eight at most.

    On a linear scale one layer with R = 1 would leave all others in one colour. A scale that
    reaches down to one layer with almost nothing would do the same.

    >>> decades([1e-30, 1e-4, 0.5])
    (0.0001, 0.5)
    """
    known = [value for value in values if value > 0]
    high = max(known, default=1.0)
    low = min((value for value in known if value >= high * 1e-8), default=0.1)
    return min(low, high / 10), high
