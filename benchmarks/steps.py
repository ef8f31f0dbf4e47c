"""The cost of the paper's protection in a training step: forward, backward, Adam, projection."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import dense
from benchmarks.catalogue import figure
from benchmarks.figure import Figure, at_most
from benchmarks.memories import papers
from benchmarks.network import bases, batch, forward, network
from benchmarks.timing import Stopwatch, Times
from nscl import Memory, distillation

Step = Callable[[], None]

LATER = 25  # tasks
LEARNING_RATE = 1e-4


@figure("step")
def protected_step(watch: Stopwatch) -> Figure:
    times = _first_task(watch)
    return step_figure("step", "protected ÷ plain Adam step", times["ours"], times["plain"], 1.40)


@figure("step-dense")
def dense_step(watch: Stopwatch) -> Figure:
    times = _first_task(watch)
    return step_figure(
        "step-dense", "the dense way ÷ plain Adam step", times["dense"], times["plain"]
    )


@figure("step-25")
def protected_step_later(watch: Stopwatch) -> Figure:
    times = _later(watch)
    counts = {tasks: count_operations(ours(tasks)) for tasks in (1, LATER)}
    note = f"{counts[1]} tensor operations at task 1, {counts[LATER]} at task {LATER}"
    title = f"protected step at task {LATER} ÷ at task 1"
    return step_figure("step-25", title, times["ours"], times["ours at task 1"], 1.03, note)


@figure("step-25-dense")
def dense_step_later(watch: Stopwatch) -> Figure:
    times = _later(watch)
    title = f"the dense way at task {LATER} ÷ plain Adam step"
    return step_figure("step-25-dense", title, times["dense"], times["plain"])


@figure("step-offload")
def offloaded_step(watch: Stopwatch) -> Figure:
    times = watch.race({"ours": ours(1, offload="disk"), "in RAM": ours(1)})
    title = "protected step, covariances on disk ÷ in RAM"
    return step_figure("step-offload", title, times["ours"], times["in RAM"], 1.03)


def step_figure(
    name: str, title: str, mine: Times, other: Times, limit: float | None = None, note: str = ""
) -> Figure:
    """Two kinds of steps in milliseconds, with the ratio of their medians in the note."""
    target = None if limit is None else at_most(limit)
    medians = f"medians {mine.median / other.median:.2f}"
    note = f"{note}; {medians}" if note else medians
    return Figure(name, title, mine.best * 1e3, other.best * 1e3, "ms", target, note)


@cache
def _first_task(watch: Stopwatch) -> dict[str, Times]:
    return watch.race({"plain": plain(), "ours": ours(1), "dense": densely(1)})


@cache
def _later(watch: Stopwatch) -> dict[str, Times]:
    contestants = {"plain": plain(), "ours at task 1": ours(1)}
    return watch.race({**contestants, "ours": ours(LATER), "dense": densely(LATER)})


def plain() -> Step:
    """A plain training step."""
    model = network()
    return partial(_train, model, torch.optim.Adam(model.parameters(), lr=LEARNING_RATE))


def ours(tasks: int, *, offload: Literal["disk"] | None = None) -> Step:
    """The same step with the paper's memory of ``tasks`` tasks."""
    return protected(papers(network(), tasks=tasks, offload=offload))


def protected(memory: Memory, *, recalls: bool = False) -> Step:
    """The same step under the protection of a memory, also with old answers held by recall."""
    optimizer = torch.optim.Adam(memory.model.parameters(), lr=LEARNING_RATE)
    protection, recalling = memory.protect(optimizer), memory if recalls else None
    return partial(_train, memory.model, optimizer, recalling=recalling, protection=protection)


def densely(tasks: int) -> Step:
    """The same step with dense projectors and a penalty for every task."""
    model = network()
    weights: dict[str, nn.Parameter] = dict(model.named_parameters())
    projectors = {weights[f"{name}.weight"]: matrix for name, matrix in _projectors().items()}
    optimizer = dense.DenseAdam(model.parameters(), projectors, lr=LEARNING_RATE)
    norms = [p for _, p in model.norm_parameters()]
    penalties = [
        [(p, torch.full_like(p, 1e-3), p.detach().clone()) for p in norms] for _ in range(tasks)
    ]
    return partial(_train, model, optimizer, penalty=partial(dense.ewc, penalties))


@cache
def _projectors() -> dict[str, Tensor]:
    return {name: dense.projector(thin) for name, thin in bases().items()}


def _train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    penalty: Callable[[], Tensor] | None = None,
    recalling: Memory | None = None,
    protection: object = None,  # keeps the memory alive as long as the step
) -> None:
    optimizer.zero_grad()
    answer = forward(model, batch().images)
    loss = F.cross_entropy(answer, batch().labels)
    if penalty is not None:
        loss = loss + penalty()
    if recalling is not None:
        loss = loss + distillation(answer, recalling.recall(batch().images, 0))
    loss.backward()
    optimizer.step()


class _Counter(TorchDispatchMode):
    """Counts tensor operations: unlike time, their number is the same on every machine."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def count_operations(step: Step) -> int:
    """Tensor operations of one step, after a first one that makes plans and buffers."""
    step()
    counter = _Counter()  # type: ignore[no-untyped-call]
    with counter:
        step()
    return counter.count
