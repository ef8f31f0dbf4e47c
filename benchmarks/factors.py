"""The cost of the second factor: a layer's output gradients are measured, not only its inputs.

Both contestants anchor the norm layers, which needs a backward pass already.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from torch import Tensor

from benchmarks.catalogue import figure
from benchmarks.covariances import ADDED
from benchmarks.figure import Figure, at_most
from benchmarks.memories import proximal
from benchmarks.network import BATCH, batch, forward, network
from benchmarks.timing import Stopwatch
from nscl import Memory, Penalty
from nscl.core.options import Factors
from nscl.errors import NsclWarning

MIB = 2**20


class EnoughError(Exception):
    """Raised where the data end, so that nothing is decomposed."""


@figure("remember-factors")
def remember_both(watch: Stopwatch) -> Figure:
    found = watch.race({"both": new_pass("kronecker"), "inputs": new_pass("input")})
    times = {name: taken.each(ADDED * BATCH) for name, taken in found.items()}
    both, inputs = times["both"], times["inputs"]
    title = "remember pass of one image: both factors ÷ inputs only"
    note = f"without the decomposition; medians {both.median / inputs.median:.2f}"
    return Figure(
        "remember-factors", title, both.best * 1e3, inputs.best * 1e3, "ms", at_most(1.8), note
    )


@figure("resident-factors")
def resident_both(_: Stopwatch) -> Figure:
    both = proximal(network(), "kronecker").nbytes
    inputs = proximal(network(), "input").nbytes
    vectors = both["projections"] - inputs["projections"]
    note = f"second moments {both['gradients'] / MIB:.1f}, eigenvectors {vectors / MIB:.1f} more"
    mine, other = (sum(held.values()) / MIB for held in (both, inputs))
    title = "resident, all that a memory holds: both factors ÷ inputs only"
    return Figure("resident-factors", title, mine, other, "MiB", at_most(1.05), note)


def new_pass(factors: Factors) -> Callable[[], None]:
    """``remember`` on some batches, up to where it would begin to decompose."""
    return partial(_remember, Memory(network(), rule=Penalty(), factors=factors, norms="ewc"))


def _remember(memory: Memory) -> None:
    # Nothing is trained here, so that no optimizer is protected.
    ignored = warnings.catch_warnings(category=NsclWarning, action="ignore")
    with ignored, suppress(EnoughError):
        memory.remember(_some_batches(), forward=forward)


def _some_batches() -> Iterator[Tensor]:
    # As many as are multiplied at once in any layer; fewer would be kept waiting.
    yield from [batch().images] * ADDED
    raise EnoughError  # all or nothing: the memory stays as it is
