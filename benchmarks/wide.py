"""Wide layers, 4096 → 14336 → 4096 as in an 8B Llama: a sketch of rank 512 beside full matrices."""

import warnings

import torch
from torch import nn

from benchmarks.catalogue import figure
from benchmarks.figure import Figure
from benchmarks.timing import Stopwatch
from nscl import Memory
from nscl.errors import NsclWarning

WIDTH, INNER, RANK = 4096, 14336, 512
ROWS, BATCHES = 512, 8
GIB = 2**30


@figure("wide-bytes")
def bytes_of_both_factors(_: Stopwatch) -> Figure:
    """Shapes are enough."""
    with torch.device("meta"):
        model = block()
    ours, full = (Memory(model, rank=rank).estimate().total for rank in (RANK, None))
    sides = [t.covariance + t.gradient + t.projection for t in (ours, full)]
    note = "covariances, gradients' second moments and projections, without the copy of the weights"
    title = f"{WIDTH} → {INNER} → {WIDTH}, both factors: rank={RANK} ÷ full"
    return Figure("wide-bytes", title, sides[0] / GIB, sides[1] / GIB, "GiB", note=note)


@figure("wide-remember-4096")
def remember_the_narrow_side(watch: Stopwatch) -> Figure:
    """What enters the first of the two layers."""
    name = "wide-remember-4096"
    return compared(watch, nn.Linear(WIDTH, 64, bias=False), name, f"{WIDTH} inputs")


@figure("wide-remember", full=True)
def remember_both_layers(watch: Stopwatch) -> Figure:
    """Its full way decomposes 14336 × 14336 in float64: minutes, and several GiB."""
    return compared(watch, block(), "wide-remember", f"inputs of {WIDTH} → {INNER} → {WIDTH}")


def block() -> nn.Sequential:
    """The two matrices of a feed-forward block."""
    up, down = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)
    return nn.Sequential(up, nn.SiLU(), down)


def compared(watch: Stopwatch, model: nn.Module, name: str, what: str) -> Figure:
    """One ``remember`` of each, decomposition included; the full way takes one turn only."""
    batches = rows()
    ways = {"ours": RANK, "full": None}
    contestants = {
        way: lambda rank=rank: remember(model, batches, rank=rank) for way, rank in ways.items()
    }
    times = watch.race(contestants, least=1, most=1, warm=False)
    note = f"{BATCHES * ROWS} rows, inputs only, decomposition included; one turn each"
    title = f"a whole remember, {what}: rank={RANK} ÷ full"
    return Figure(name, title, times["ours"].best, times["full"].best, "s", note=note)


def remember(model: nn.Module, batches: list[torch.Tensor], *, rank: int | None) -> Memory:
    """One pass and one decomposition."""
    memory = Memory(model, factors="input", rank=rank)
    with warnings.catch_warnings(category=NsclWarning, action="ignore"):
        memory.remember(batches)
    return memory


def rows() -> list[torch.Tensor]:
    """Rows of full rank whose energy falls by three powers of ten from first to last direction."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(0, -1.5, WIDTH)
    return [torch.randn(ROWS, WIDTH, generator=generator) * scale for _ in range(BATCHES)]
