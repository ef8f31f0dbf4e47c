"""A step of the twentieth task asks no more of torch than one of the first few did.

Counted, not timed: operations that torch dispatches and elements they yield are the same on every
machine, however busy. The method's own life of a task is gone through, two steps per phase.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import nscl.training.setup
from nscl.methods import METHODS
from nscl.training.device import Ranks
from nscl.training.loop import EpochLoop
from nscl.training.setup import Setup
from tests.methods.labs import stream
from tests.runs import small

TASKS = 20
# GEM asks every old task for its gradient; its entry in the list of methods says so.
GROWS = ("gem",)
# These ask every head they have, by definition; heads are small.
EVERY_HEAD = ("joint", "lwf", "gd-wild")
OPTIONS: dict[str, dict[str, Any]] = {
    # A memory smaller than the batch that is drawn from it would be drawn whole, and grow; and old
    # heads that go on learning are more numbers than this little network has.
    "a-gem": {"per_class": 4, "reference_batch": 8, "old_heads": False},
    "mega": {"per_class": 4, "reference_batch": 8, "old_heads": False},
    "adns": {"head_epochs": 1},
    "muc-mas": {"pool": "procedural", "pool_size": 30},
    "gd-wild": {"pool": "procedural", "pool_size": 30, "budget": 2 * TASKS},
}


class Cost(NamedTuple):
    """Of one step."""

    operations: int
    elements: int
    backbone: int  # passes through it, of copies of the network too


class Counting(TorchDispatchMode):
    """Counts tensor operations and the elements they yield."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.elements = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        self.elements += result.numel() if isinstance(result, Tensor) else 0
        return result


class CountedLoop(EpochLoop):
    """The real loop with a counter around its step."""

    def _step(self, batch: Any, tally: Any) -> None:
        kind, passes = type(self.method.model.backbone), []
        hook = torch.nn.modules.module.register_module_forward_hook(
            lambda module, *_: passes.append(module) if isinstance(module, kind) else None
        )
        try:
            with Counting() as counted:
                super()._step(batch, tally)
        finally:
            hook.remove()
        self.costs.append(Cost(counted.operations, counted.elements, len(passes)))

    costs: list[Cost]


def costs(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[list[Cost]]]:
    """By phase and task, what each step costs; the first task has nothing to protect."""
    tiny = stream([2] * TASKS, images=20)
    monkeypatch.setattr(nscl.training.setup, "open_stream", lambda *args, **options: tiny)
    network = "convnet" if method == "instaparam" else "mlp"  # it has kernels to choose from
    model, optim = {"name": network, "width": 8}, {"epochs": 1, "batch_size": 10}
    said = {"options": OPTIONS.get(method, {}), "model": model, "optim": optim}
    setup = Setup.build(small(method, tmp_path, data={"first": TASKS}, **said), Ranks())
    found: dict[str, list[list[Cost]]] = defaultdict(list)
    for task in range(TASKS):
        for phase, costs in _learn(setup, task).items():
            if task > 0:
                found[phase].append(costs)
    setup.close()
    return found


def _learn(setup: Setup, task: int) -> dict[str, list[Cost]]:
    method, found = setup.method, {}
    setup.loaders.task = task
    torch.manual_seed(task)
    setup.statistics.start_task(task)
    method.start_task(task)
    for phase in method.phases(task):
        method.enter_phase(task, phase)
        optimizer, steps = method.optimizer(task, phase), found.setdefault(phase.name, [])
        loop = CountedLoop(
            method, optimizer, task, phase, Ranks(), "fp32", stop=lambda s=steps: len(s) >= 2
        )
        loop.costs = steps
        setup.model.train()
        loop.run(setup.loaders(method.training_split(task), purpose=phase.name))
        method.leave_phase(task, phase)
    method.end_task(task)
    setup.statistics.end_task(task)
    return found


def worst(tasks: list[list[Cost]], what: str) -> int:
    return max(getattr(cost, what) for task in tasks for cost in task)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Steps of microseconds: threads would wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in (*GROWS, *EVERY_HEAD)])
def test_a_step_of_task_20_costs_what_early_ones_cost(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a single operation more; sizes may grow a little, as bases of subspaces do."""
    for phase, tasks in costs(method, tmp_path, monkeypatch).items():
        early, late = tasks[:8], tasks[-1:]
        assert worst(late, "operations") <= worst(early, "operations"), phase
        assert worst(late, "elements") <= 1.5 * worst(tasks[:2], "elements"), phase
        assert worst(late, "backbone") <= worst(early, "backbone"), phase


@pytest.mark.parametrize("method", EVERY_HEAD)
def test_where_every_head_is_asked_nothing_but_heads_costs_more(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tasks in costs(method, tmp_path, monkeypatch).values():
        assert worst(tasks[-1:], "backbone") == worst(tasks[:1], "backbone")
        more = worst(tasks[-1:], "operations") - worst(tasks[:1], "operations")
        assert more <= 40 * (TASKS - 2)


def test_gem_is_the_exception_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tasks,) = costs("gem", tmp_path, monkeypatch).values()
    assert [worst([task], "backbone") for task in tasks] == list(range(2, TASKS + 1))
    assert "steps cost more with every task" in METHODS["gem"].description
