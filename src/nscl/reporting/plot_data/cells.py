"""Cells of heat maps: their numbers as text, and the range of values that the colours span."""

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from math import ceil, floor

# Share of the colour map (cividis) from which black letters are easier to read than white ones:
# there its relative luminance (WCAG) passes 0.179.
LIGHT = 0.468


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
