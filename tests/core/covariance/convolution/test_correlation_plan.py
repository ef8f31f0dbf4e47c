"""The terms of a plan, added up pixel by pixel, against the pairs of pixels that patches have."""

from collections import Counter
from itertools import product

import pytest

from nscl.core.covariance.convolution.correlation_plan import Term, plan
from nscl.core.covariance.convolution.unfold import Geometry

Pair = tuple[tuple[int, ...], tuple[int, ...]]

CASES = {
    "padded": Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    "without padding": Geometry((2, 3), (1, 1), (1, 1), ((0, 0), (0, 0))),
    "dilated": Geometry((2, 2), (1, 1), (2, 1), ((1, 0), (2, 1))),
    "one dimension": Geometry((3,), (1,), (1,), ((2, 2),)),
}


def pixels(term: Term, size: tuple[int, ...]) -> Counter[Pair]:
    """The pairs of pixels that one term multiplies."""
    ((start, stop), here, there), lag = term
    found: Counter[Pair] = Counter()
    for line in range(start, stop):
        if not 0 <= line + lag < size[0]:
            continue
        columns = product(*(range(a, b) for a, b in here))
        partners = product(*(range(a, b) for a, b in there))
        for column, partner in zip(columns, partners, strict=True):
            found[(line, *column), (line + lag, *partner)] += 1
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [4, 5])
def test_terms_add_up_to_the_pairs_that_patches_have(case: str, length: int) -> None:
    geometry = CASES[case]
    size = tuple(length + i for i in range(len(geometry.kernel)))
    made = plan(size, geometry)
    for (i, j), terms in made.blocks.items():
        first, second = geometry.offsets[i], geometry.offsets[j]
        wanted: Counter[Pair] = Counter()
        for position in product(*(range(n) for n in geometry.output_size(size))):
            pair = tuple(
                tuple(
                    p + o * d - before
                    for p, o, d, (before, _) in zip(
                        position, offset, geometry.dilation, geometry.padding, strict=True
                    )
                )
                for offset in (first, second)
            )
            if all(0 <= x < n for pixel in pair for x, n in zip(pixel, size, strict=True)):
                wanted[pair] += 1  # elsewhere one of the two is a zero of the padding
        found: Counter[Pair] = Counter()
        for sign, term in terms:
            for pair, count in pixels(term, size).items():
                found[pair] += sign * count
        assert {pair: n for pair, n in found.items() if n} == dict(wanted)


def test_a_plan_costs_less_than_unfolding() -> None:
    geometry = CASES["padded"]
    assert plan((16, 16), geometry).cost < 0.3 * 81 * 16 * 16
