"""The cost of recall, an output of the remembered weights: one forward pass, no second model."""

import torch

from benchmarks.catalogue import figure
from benchmarks.figure import Figure, at_most
from benchmarks.memories import as_it_comes
from benchmarks.network import batch, forward, network
from benchmarks.timing import Stopwatch


@figure("recall")
def recall(watch: Stopwatch) -> Figure:
    memory, evaluated = as_it_comes(network()), network().eval()  # ours is in training mode

    def ours() -> None:
        memory.recall(batch().images, 0)

    @torch.no_grad()
    def plainly() -> None:
        forward(evaluated, batch().images)

    times = watch.race({"ours": ours, "plain": plainly})
    mine, other = times["ours"], times["plain"]
    title, note = (
        "recall ÷ a forward pass in eval mode",
        f"medians {mine.median / other.median:.2f}",
    )
    return Figure("recall", title, mine.best * 1e3, other.best * 1e3, "ms", at_most(1.05), note)
