"""The cost per step of rules on the total displacement, which act once in several steps.

A turn of both contestants is as many steps as there are from one treatment to the next: the best of
single steps would be one after which nothing is treated.
"""

from functools import partial

from benchmarks.catalogue import figure
from benchmarks.figure import Figure
from benchmarks.memories import as_it_comes, papers_displaced
from benchmarks.network import network
from benchmarks.steps import Step, plain, protected, step_figure
from benchmarks.timing import Stopwatch
from nscl import Memory

EVERY = 10


@figure("step-default")
def step_as_it_comes(watch: Stopwatch) -> Figure:
    title = "step with Memory(model) as it comes ÷ plain Adam step"
    return amortised(watch, "step-default", title, as_it_comes(network()), 1.15)


@figure("step-recall")
def step_with_recall(watch: Stopwatch) -> Figure:
    title = "the same step with old answers held by recall ÷ plain Adam step"
    return amortised(watch, "step-recall", title, as_it_comes(network()), 1.5, recalls=True)


@figure("step-displacement")
def hard_step(watch: Stopwatch) -> Figure:
    title = f"step with the hard rule on the displacement, every={EVERY} ÷ plain Adam step"
    memory = papers_displaced(network(), every=EVERY)
    return amortised(watch, "step-displacement", title, memory, 1.10)


def amortised(
    watch: Stopwatch, name: str, title: str, memory: Memory, limit: float, *, recalls: bool = False
) -> Figure:
    """A memory's mean step from treatment to treatment, beside as many plain ones."""
    count, ours = memory.every, protected(memory, recalls=recalls)
    contestants = {"ours": repeated(ours, count), "plain": repeated(plain(), count)}
    times = {n: t.each(count) for n, t in watch.race(contestants).items()}
    note = f"rule={memory.rule}, factors={memory.factors}, every={count}"
    return step_figure(name, title, times["ours"], times["plain"], limit, note)


def repeated(step: Step, count: int) -> Step:
    """``count`` steps as one turn."""
    return partial(_repeat, step, count)


def _repeat(step: Step, count: int) -> None:
    for _ in range(count):
        step()
