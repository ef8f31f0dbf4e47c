"""A step of the twentieth task asks no more of torch than one of the second did.

Counted, not timed: operations that torch dispatches, elements they yield and multiplications of
their matrix products are the same on every machine, however busy. The method's own life of a task
is gone through, two steps per phase.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

import nscl.training.setup
from nscl.methods import METHODS
from nscl.training.loop import EpochLoop
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.labs import stream
from tests.runs import small

TASKS, CLASSES, WIDTH = 20, 2, 8
HEAD = CLASSES * WIDTH + CLASSES  # parameters
# GEM asks every old task for its gradient; its entry in the list of methods says so.
GROWS = ("gem",)
# A memory smaller than the batch that is drawn from it would be drawn whole, and grow.
REPLAY = {"per_class": 4, "reference_batch": 8}
#: What ask every head they have, by definition, in one product.
EVERY_HEAD: dict[str, tuple[str, dict[str, Any]]] = {
    "joint": ("joint", {}),
    "lwf": ("lwf", {}),
    "lwf, frozen heads": ("lwf", {"freeze_old_heads": True}),
    "nscl": ("nscl", {}),
    "gd-wild": ("gd-wild", {"pool": "procedural", "pool_size": 30, "budget": CLASSES * TASKS}),
    "gd-wild, no pool": ("gd-wild", {"pool": "none", "budget": CLASSES * TASKS}),
    "a-gem": ("a-gem", REPLAY),
    "a-gem, frozen heads": ("a-gem", {**REPLAY, "old_heads": False}),
    "mega": ("mega", REPLAY),
    "mega, frozen heads": ("mega", {**REPLAY, "old_heads": False}),
}
#: What project steps: options, and the most multiplications in units of a dense projector's.
PROJECTING: dict[str, tuple[str, dict[str, Any], int]] = {
    "adam-nscl": ("adam-nscl", {"a": 30.0}, 1),
    "adns": ("adns", {"head_epochs": 1}, 1),
    "connector": ("connector", {"a": 30.0}, 1),
    "owm, online": ("owm", {"mode": "online"}, 1),
    "owm": ("owm", {}, 1),
    # A basis that has grown beyond half of all directions is two thick products where P is one.
    "gpm": ("gpm", {}, 2),
    "sgp": ("sgp", {}, 2),
}
OPTIONS: dict[str, dict[str, Any]] = {"muc-mas": {"pool": "procedural", "pool_size": 30}}
# Policies decide on a step's branches; the first step with external images draws them.
DRAWN = {"instaparam": "", "muc-mas": "side, step 0"}  # how these steps' names begin
TOLD = {name for name, *_ in (*EVERY_HEAD.values(), *PROJECTING.values())}
OTHERS = [name for name in METHODS if name not in (*GROWS, *TOLD)]


@dataclass
class Cost:
    """Of one step, operation by operation."""

    operations: list[str] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)
    products: list[int] = field(default_factory=list)  # multiplications
    projecting: int = 0  # those of them made within the optimizer's step
    images: list[int] = field(default_factory=list)  # of each pass through a backbone


class Counting(TorchDispatchMode):
    """Notes tensor operations, the elements they yield and the multiplications they make."""

    def __init__(self) -> None:
        super().__init__()
        self.cost, self.stepping = Cost(), False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = [value for value in tree_leaves(result) if isinstance(value, Tensor)]
        products = multiplications(func, args, kwargs or {}, result)
        self.cost.operations.append(str(func))
        self.cost.elements.append(sum(output.numel() for output in outputs))
        self.cost.products.append(products)
        self.cost.projecting += products if self.stepping else 0
        return result


def multiplications(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Of a matrix product or a convolution, also in place; torch counts an addition for each."""
    packet = getattr(torch.ops.aten, func.overloadpacket.__name__.rstrip("_"), None)
    count = flop_registry.get(packet)
    return 0 if count is None else count(*args, **kwargs, out_val=result) // 2


class CountedLoop(EpochLoop):
    """The real loop with a counter around its step."""

    def _step(self, batch: Any, tally: Any) -> None:
        kind, counting = type(self.method.model.backbone), Counting()

        def passed(module: Any, args: Any, output: Any) -> None:
            if isinstance(module, kind):
                counting.cost.images.append(len(output))

        hooks = [
            torch.nn.modules.module.register_module_forward_hook(passed),
            self.optimizer.register_step_pre_hook(lambda *_: setattr(counting, "stepping", True)),
            self.optimizer.register_step_post_hook(lambda *_: setattr(counting, "stepping", False)),
        ]
        try:
            with counting:
                super()._step(batch, tally)
        finally:
            for hook in hooks:
                hook.remove()
        self.costs.append(counting.cost)

    costs: list[Cost]


@dataclass(frozen=True)
class Steps:
    """The same step of a phase in every task but the first, which has nothing to protect."""

    what: str
    costs: list[Cost]

    @property
    def first(self) -> Cost:
        """Of the second task."""
        return self.costs[0]


def steps(
    method: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Steps]:
    tiny = stream([CLASSES] * TASKS, images=20)
    monkeypatch.setattr(nscl.training.setup, "open_request", lambda _: tiny)
    network = "convnet" if method == "instaparam" else "mlp"  # it has kernels to choose from
    model, optim = {"name": network, "width": WIDTH}, {"epochs": 1, "batch_size": 10}
    given = {"options": options, "model": model, "optim": optim}
    setup = Setup.build(small(method, tmp_path, data={"first": TASKS}, **given), Ranks())
    found: dict[str, list[Cost]] = defaultdict(list)
    for task in range(TASKS):
        for name, cost in _learn(setup, task):
            if task > 0:
                found[name].append(cost)
    setup.close()
    return [Steps(what, costs) for what, costs in found.items()]


def _learn(setup: Setup, task: int) -> Iterator[tuple[str, Cost]]:
    method = setup.method
    setup.loaders.task = task
    torch.manual_seed(task)
    setup.statistics.start_task(task)
    method.start_task(task)
    for phase in method.phases(task):
        method.enter_phase(task, phase)
        optimizer, costs = method.optimizer(task, phase), []
        loop = CountedLoop(
            method, optimizer, task, phase, Ranks(), "fp32", stop=lambda c=costs: len(c) >= 2
        )
        loop.costs = costs
        setup.model.train()
        loop.run(setup.loaders(method.training_split(task), purpose=phase.name))
        method.leave_phase(task, phase)
        yield from ((f"{phase.name}, step {i}", cost) for i, cost in enumerate(costs[:2]))
    method.end_task(task)
    setup.statistics.end_task(task)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Steps of microseconds: threads would wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("method", OTHERS)
def test_a_step_of_any_task_costs_what_one_of_task_2_costs(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same operations on as many numbers, to the last one."""
    for step in steps(method, OPTIONS.get(method, {}), tmp_path, monkeypatch):
        if method in DRAWN and step.what.startswith(DRAWN[method]):
            check_on_the_whole(step)
        else:
            assert all(cost == step.first for cost in step.costs), step.what


def check_on_the_whole(step: Steps) -> None:
    """Where draws decide on a step's operations: the last task beside the worst of the first."""
    early, late = step.costs[:8], step.costs[-1]
    assert len(late.operations) <= max(len(cost.operations) for cost in early), step.what
    for what in ("elements", "products"):
        most = max(sum(getattr(cost, what)) for cost in early[:2])
        assert sum(getattr(late, what)) <= 1.5 * most, step.what
    assert late.images == step.first.images


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_where_every_head_is_asked_only_the_heads_numbers_grow(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same operations; each yields, for a further head, its logits or its parameters more."""
    # Whether A-GEM has anything to correct is the data's affair: here it always has.
    monkeypatch.setattr("nscl.methods.replay.a_gem.reference_weight", lambda products: 1.0)
    grew = False
    for step in steps(*EVERY_HEAD[name], tmp_path, monkeypatch):
        first, images = step.first, max(step.first.images)
        for heads, cost in enumerate(step.costs):
            assert (cost.operations, cost.images) == (first.operations, first.images), step.what
            further = [b - a for a, b in zip(first.elements, cost.elements, strict=True)]
            # Two gradients lie side by side where they are compared.
            assert max(further) <= heads * max(images * CLASSES, 2 * HEAD), step.what
            further = [b - a for a, b in zip(first.products, cost.products, strict=True)]
            assert max(further) <= heads * images * CLASSES * WIDTH, step.what
            grew |= max(further) > 0
    assert grew


@pytest.mark.parametrize("name", PROJECTING)
def test_projecting_costs_no_more_than_dense_projectors_would(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases grow, to what all directions take; nothing else does."""
    method, options, times = PROJECTING[name]
    dense = sum(WIDTH * (inputs + 1) ** 2 for inputs in (16, WIDTH))  # a bias is one more input
    found = steps(method, options, tmp_path, monkeypatch)
    for step in found:
        first, apart = step.first, sum(step.first.products) - step.first.projecting
        for cost in step.costs:
            assert (cost.operations, cost.images) == (first.operations, first.images), step.what
            assert sum(cost.products) - cost.projecting == apart, step.what
            assert cost.projecting <= times * dense, step.what
            assert sum(cost.elements) <= 1.5 * sum(first.elements), step.what
    assert any(cost.projecting for step in found for cost in step.costs)


def test_gem_is_the_exception_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = steps("gem", {}, tmp_path, monkeypatch)
    for step in found:
        assert [len(cost.images) for cost in step.costs] == list(range(2, TASKS + 1))
    assert len(found) == 2
    assert "steps cost more with every task" in METHODS["gem"].description


def test_products_are_counted_with_their_inner_dimension() -> None:
    left, right = torch.ones(2, 3, 5), torch.ones(2, 5, 7)
    with Counting() as counting:
        torch.bmm(left, right).baddbmm_(left, right)
        torch.nn.functional.linear(left[0], torch.ones(4, 5), torch.ones(4))
        torch.conv2d(torch.ones(1, 2, 6, 6), torch.ones(3, 2, 3, 3))
        left[0].unbind(1)
    each = [count for count in counting.cost.products if count]
    assert each == [2 * 3 * 5 * 7, 2 * 3 * 5 * 7, 3 * 5 * 4, 16 * 3 * 2 * 9]
    assert counting.cost.elements[-1] == 15
