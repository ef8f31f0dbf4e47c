"""Memories put together: halves are the whole, strangers are refused."""

import copy
import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.errors import ModelMismatchError
from tests.core.memories import move, remembered, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def network(width: int = 6) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, groups=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, width),
        nn.LayerNorm(width),
        nn.Linear(width, 3),
    ).double()


def images(count: int) -> Tensor:
    return torch.randn(count, 2, 4, 4, dtype=torch.float64)


def dense(memory: nscl.Memory, name: str) -> Tensor:
    block, projection = memory._state.blocks[name], memory._state.projections[name]
    matrix = torch.eye(block.width, dtype=torch.float64).repeat(block.groups, 1, 1)
    features = matrix[..., : block.features].clone()
    bias = matrix[..., block.features].clone()
    projection.apply_(features, [bias])
    return torch.cat([features, bias[..., None]], -1)


@pytest.mark.parametrize(
    ("rule", "offload"),
    [(nscl.Ratio(50.0), None), (nscl.Energy(0.2), None), (nscl.Ridge(3.0), "disk")],
)
def test_two_halves_are_the_whole(rule: Any, offload: Any) -> None:
    model, batches = network(), images(30).split(5)
    whole, one, two = (nscl.Memory(model, rule=rule, offload=offload) for _ in range(3))
    whole.remember(batches)
    one.remember(batches[:4])
    two.remember(batches[4:])
    report = one.merge(two)
    assert same(remembered(one), remembered(whole), atol=1e-12)
    assert report.tasks == 1
    for name in ("0", "4", "6"):
        assert torch.allclose(dense(one, name), dense(whole, name), atol=1e-10), name
    for mine, truth in zip(report.layers, whole.report().layers, strict=True):
        assert mine.name == truth.name
        assert mine.free == pytest.approx(truth.free, abs=1e-9)
        assert mine.share == pytest.approx(truth.share, abs=1e-9)


def test_halves_of_two_tasks_with_training_in_between() -> None:
    model = network()
    whole, one, two = (nscl.Memory(model, rule=nscl.Ridge(1.0)) for _ in range(3))
    for _ in range(2):
        batches = images(12).split(3)
        whole.remember(batches)
        one.remember(batches[:2])
        two.remember(batches[2:])
        move(model, 0.01)
    one.merge(two)
    assert one.tasks == 2
    assert same(remembered(one), remembered(whole), atol=1e-12)
    assert torch.allclose(dense(one, "4"), dense(whole, "4"), atol=1e-10)


def test_tasks_of_their_own_are_counted_as_such() -> None:
    model = network()
    both, one, two = (nscl.Memory(model, rule=nscl.Ridge(1.0)) for _ in range(3))
    first, second = [images(6)], [images(4)]
    both.remember(first)
    both.remember(second)
    one.remember(first)
    two.remember(second)
    one.merge(two, same_tasks=False)
    assert one.tasks == 2
    assert same(remembered(one), remembered(both), atol=1e-12)
    assert torch.allclose(dense(one, "4"), dense(both, "4"), atol=1e-10)


@pytest.mark.parametrize(("mine", "theirs"), [(None, "disk"), ("disk", None)])
def test_an_empty_memory_takes_over_all_and_outlives_the_other(mine: Any, theirs: Any) -> None:
    model = network()
    memory, other = (
        nscl.Memory(model, rule=nscl.Ratio(), offload=mine),
        nscl.Memory(model, rule=nscl.Ratio(), offload=theirs),
    )
    other.remember([images(5)])
    expected = remembered(other)
    memory.merge(other)
    del other
    gc.collect()
    assert same({**remembered(memory), "metadata": None}, {**expected, "metadata": None})
    move(model)
    assert memory.forgetting().total.drift > 0


def test_merging_leaves_the_other_as_it_was() -> None:
    model = network()
    one, two = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    one.remember([images(4)])
    two.remember([images(4)])
    before = remembered(two)
    one.merge(two)
    assert same(remembered(two), before)


def test_memories_of_other_weights_are_refused() -> None:
    model = network()
    one, two = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(copy.deepcopy(model))
    one.remember([images(4)])
    move(two.model)
    two.remember([images(4)])
    known = remembered(one)
    with pytest.raises(ModelMismatchError, match=r"different weights: '0.bias' differs"):
        one.merge(two)
    assert same(remembered(one), known)


def test_memories_of_other_models_are_refused() -> None:
    one, two = nscl.Memory.adam_nscl(network()), nscl.Memory.adam_nscl(network(width=5))
    two.remember([images(4)])
    with pytest.raises(ModelMismatchError, match=r"layer '4'.* 5 × 64 .* 6 × 64"):
        one.merge(two)
    with pytest.raises(TypeError, match="merge needs another Memory, not dict"):
        one.merge({})  # type: ignore[arg-type]
    assert one.tasks == 0


WIDTHS: dict[str, tuple[Any, Any, Tensor]] = {
    "embedding": (lambda: nn.Embedding(5, 4), lambda: nn.Embedding(5, 6), torch.tensor([[1, 2]])),
    "transposed": (
        lambda: nn.ConvTranspose1d(2, 4, 3, bias=False),
        lambda: nn.ConvTranspose1d(2, 6, 3, bias=False),
        torch.randn(1, 2, 5),
    ),
    "kernel": (
        lambda: nn.Conv2d(2, 4, (1, 3)),
        lambda: nn.Conv2d(2, 4, (3, 1)),
        torch.randn(1, 2, 5, 5),
    ),
}


@pytest.mark.parametrize(("old", "new", "x"), WIDTHS.values(), ids=WIDTHS.keys())
def test_shapes_that_are_alike_as_matrices_are_distinguished(old: Any, new: Any, x: Tensor) -> None:
    memory, model = nscl.Memory.adam_nscl(old()), new()
    memory.remember([x])
    shapes = [str(tuple(m.weight.shape)) for m in (memory.model, model)]
    message = rf"'weight' was remembered with shape \{shapes[0][:-1]}\).*\{shapes[1][:-1]}\)"
    with pytest.raises(ModelMismatchError, match=message):
        nscl.Memory.adam_nscl(model).load_state_dict(memory.state_dict())


def test_what_did_not_change_is_not_decomposed_again() -> None:
    model = nn.ModuleDict({"one": nn.Linear(3, 2), "two": nn.Linear(3, 2)})
    for offload in (None, "disk"):
        memory = nscl.Memory(model, rule=nscl.Ratio(), offload=offload)
        memory.remember([torch.randn(4, 3)], forward=lambda m, x: m["one"](x))
        before = memory._state.projections["one"]
        memory.remember([torch.randn(4, 3)], forward=lambda m, x: m["two"](x))
        assert memory._state.projections["one"] is before
        assert {n: c.tasks for n, c in memory._state.covariances.items()} == {"one": 1, "two": 1}


def test_forgetting_counts_from_the_last_remember_for_all_layers() -> None:
    model = nn.ModuleDict({"one": nn.Linear(3, 2), "two": nn.Linear(3, 2)})
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([torch.randn(4, 3)], forward=lambda m, x: m["one"](x))
    move(model)
    assert memory.forgetting().layers[0].drift > 0
    memory.remember([torch.randn(4, 3)], forward=lambda m, x: m["two"](x))
    assert [layer.drift for layer in memory.forgetting().layers] == [0.0, 0.0]


def changeable() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 5),
        nn.LayerNorm(5),
        nn.Linear(5, 2),
    )


def pictures(count: int = 4) -> Tensor:
    return torch.randn(count, 2, 4, 4)


def with_a_renamed_layer(model: nn.Sequential) -> None:
    model._modules["four"] = model._modules.pop("4")


CHANGES: dict[str, tuple[Any, str]] = {
    "resized": (
        lambda m: m.__setitem__(4, nn.Linear(48, 7)),
        r"'4' was remembered.*5 × 48.*7 × 48",
    ),
    "without bias": (lambda m: m.__setitem__(6, nn.Linear(5, 2, bias=False)), "'6'.*no bias"),
    "another type": (lambda m: m.__setitem__(4, nn.Conv1d(48, 5, 1)), "'4'.*Linear.*Conv1d"),
    "with_a_renamed_layer": (
        with_a_renamed_layer,
        r"'4' \(Linear, 5 × 48.*no such protected layer; it has: 0, 6, four",
    ),
    "removed": (lambda m: m.__delitem__(6), r"'6' \(Linear, 2 × 5 \(rows\)\) was remembered, but"),
    "norm resized": (
        lambda m: m.__setitem__(5, nn.LayerNorm((1, 5))),
        r"'5.bias'.*\(5,\).*\(1, 5\)",
    ),
    "norm removed": (lambda m: m.__setitem__(5, nn.Identity()), r"'5.bias'.*no such tensor"),
    "statistics gone": (
        lambda m: m.__setitem__(1, nn.BatchNorm2d(3, track_running_stats=False)),
        r"'1.running_mean'.*\(3,\).*no such tensor",
    ),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES.keys())
def test_a_model_that_was_changed_is_noticed(change: Any, message: str) -> None:
    model = changeable()
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([pictures()])
    known = remembered(memory)
    change(model)
    for act in (
        lambda: memory.remember([pictures()]),
        memory.forgetting,
        memory.report,
        lambda: memory.protect(torch.optim.SGD(model.parameters(), 0.1)),
    ):
        with pytest.raises(ModelMismatchError, match=message):
            act()
    assert same(remembered(memory), known)
