"""Today's architectures, on line one: what is remembered is held, and forgetting is measured."""

import copy
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.capture.losses import float_tensors
from nscl.core.model.inventory import take_inventory
from nscl.core.model.layer_types import Call, layer_type_of
from tests.core.memories import move

pytest.importorskip("transformers")
from tests.integrations.architectures import HIDDEN_STATES, MODELS, Batch, mixtral

RULE = nscl.Tolerance(1e-10)


def made(name: str, **options: Any) -> tuple[nn.Module, nscl.Memory, torch.optim.Optimizer]:
    torch.manual_seed(0)
    make, _ = MODELS[name]
    model = make().double().eval()
    memory = nscl.Memory(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    memory.protect(optimizer)
    return model, memory, optimizer


def batch(name: str, *, seed: int) -> Batch:
    return MODELS[name][1](seed=seed)


def outputs(model: nn.Module, name: str, *, seed: int = 0) -> Tensor:
    found = float_tensors(model(**batch(name, seed=seed)))
    return torch.cat([tensor.flatten() for tensor in found])


def train(model: nn.Module, name: str, optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        (outputs(model, name, seed=10 + step) - 1.0).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("name", MODELS)
def test_old_outputs_do_not_move_where_everything_is_held(name: str) -> None:
    model, memory, optimizer = made(name, rule=RULE, norms="freeze")
    memory.remember([batch(name, seed=0)])
    with torch.no_grad():
        before, elsewhere = outputs(model, name), outputs(model, name, seed=20)
    train(model, name, optimizer)
    with torch.no_grad():
        moved = (outputs(model, name) - before).abs().max()
        learned = (outputs(model, name, seed=20) - elsewhere).abs().max()
    # Norms of some models compute in float32: what rounding leaves there is not a movement.
    assert moved < 1e-6 * before.abs().max()
    assert learned > 1e-3 * elsewhere.abs().max()


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_keeps_the_rules_promise_and_forgetting_is_true(name: str) -> None:
    model, memory, optimizer = made(name, rule=RULE)
    memory.remember([batch(name, seed=0)])
    old = copy.deepcopy(model)
    train(model, name, optimizer)
    assert all(layer.relative < 1e-10 for layer in memory.forgetting().layers)
    assert max(measured(old, model, name).values()) < 1e-8
    move(model, by=0.01)
    truth = measured(old, model, name)
    forgotten = memory.forgetting()
    found = {layer.name: layer.drift for layer in forgotten.layers}
    experts = {layer for layer in found if ".experts." in layer}  # no output of their own
    assert found.keys() == truth.keys() | experts
    for layer, drift in truth.items():
        assert found[layer] == pytest.approx(drift, rel=1e-6), layer
    weighed = {entry.name: entry.moved for entry in forgotten.parameters}
    unreached = {entry.name: entry.moved for entry in forgotten.uncounted}  # mask tokens
    distances = elementwise_distances(old, model)
    assert distances.keys() == weighed.keys() | unreached.keys()
    for part, distance in distances.items():
        assert (weighed | unreached)[part] == pytest.approx(distance, rel=1e-6), part


@torch.no_grad()
def elementwise_distances(old: nn.Module, model: nn.Module) -> dict[str, float]:
    """‖Δw‖ / ‖w‖ of each norm layer and of each plain parameter; 1 is the size of a zero."""
    found, now = take_inventory(old), dict(model.named_parameters())
    parts: dict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for name, before in found.elementwise().items():
        part = name if name in found.plain else name.rpartition(".")[0]
        parts[part].append((before.flatten(), (now[name] - before).flatten()))
    sizes = {}
    for part, pairs in parts.items():
        before, change = map(torch.cat, zip(*pairs, strict=True))
        size = before.norm() if before.any() else before.numel() ** 0.5
        sizes[part] = float(change.norm() / size)
    return sizes


@torch.no_grad()
def measured(old: nn.Module, model: nn.Module, name: str) -> dict[str, float]:
    """How far each layer's output has moved on what it was fed: mean squares over all its rows."""
    found, now = take_inventory(old), dict(model.named_modules())
    sums: dict[str, float] = defaultdict(float)
    rows: dict[str, int] = defaultdict(int)
    handles = []
    for module_name, module in old.named_modules():
        kind, uses = layer_type_of(module), found.uses.get(module, [])
        if kind is None or len(uses) != 1:
            continue

        def hook(
            layer: nn.Module,
            args: Any,
            kwargs: Any,
            output: Any,
            *,
            kind: Any = kind,
            block: str = uses[0].block,
            twin: nn.Module = now[module_name],
        ) -> None:
            first = (lambda o: o[0]) if isinstance(output, tuple) else (lambda o: o)
            apart = first(twin(*args, **kwargs)) - first(output)
            if isinstance(output, tuple):
                apart = apart.reshape(1, -1, apart.shape[-1])
            else:
                (apart,) = kind.gradients(layer, Call(args, kwargs, output), apart)
            sums[block] += float(apart.double().square().sum())
            rows[block] += apart.shape[1]

        handles.append(module.register_forward_hook(hook, with_kwargs=True))
    outputs(old, name)
    for handle in handles:
        handle.remove()
    return {block: sums[block] / rows[block] for block in sums}


@pytest.mark.parametrize("name", MODELS)
def test_defaults_work(name: str) -> None:
    model, memory, optimizer = made(name)
    likelihood: Any = "gaussian" if name in HIDDEN_STATES else None
    report = memory.remember([batch(name, seed=0)], likelihood=likelihood)
    how = {layer.protected_by for layer in report.layers}
    assert how <= {"both factors", "diagonal", "free until remembered"}
    free = [layer.name for layer in report.layers if "free" in layer.protected_by]
    assert all("mask" in name for name in free)  # a mask token that no batch has used
    train(model, name, optimizer)
    memory.flush()
    assert 0 < memory.forgetting().total.relative < 1


@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
def test_experts_are_the_same_however_they_are_computed(implementation: str) -> None:
    sums = []
    for how in ("eager", implementation):
        torch.manual_seed(0)
        model = mixtral(experts_implementation=how).eval()
        memory = nscl.Memory(model)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        with memory.protect(optimizer):
            memory.remember([batch("mixtral", seed=0)])
        tensors = memory.state_dict()["tensors"]
        sums.append({n: t for n, t in tensors.items() if ".experts." in n and "nce/" in n})
    assert len(sums[0]) == 8  # covariance and reference of two matrices in two layers
    for name, tensor in sums[0].items():
        assert torch.allclose(tensor, sums[1][name], rtol=1e-3, atol=1e-5), name
