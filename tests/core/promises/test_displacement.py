"""``acts_on='displacement'``: the proximal step of the old data's quadratic; and ``scale``."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from tests.core.protected_scene import (
    EXACT,
    Scene,
    furthest,
    mlp,
    protected_scene,
    sgd,
    stacked,
    values,
)


def rows_of(model: nn.Sequential, data: Tensor) -> dict[int, Tensor]:
    """What every linear layer sees, with its constant."""
    found, x = {}, data
    for i, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            found[i] = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1).detach()
        x = layer(x)
    return found


def minimiser(candidate: Tensor, C: Tensor) -> Tensor:
    """``argmin ½‖D − candidate‖² + tr(D C Dᵀ)/2``, row by row, by solving its normal equations."""
    eye = torch.eye(len(C), dtype=C.dtype)
    return torch.stack([torch.linalg.solve(eye + C, row) for row in candidate])


def is_minimum(found: Tensor, candidate: Tensor, C: Tensor) -> bool:
    """No small movement makes the objective smaller."""

    def objective(D: Tensor) -> Tensor:
        return 0.5 * (D - candidate).square().sum() + 0.5 * (D @ C @ D.T).trace()

    best = objective(found)
    return all(objective(found + 1e-3 * torch.randn_like(found)) > best for _ in range(20))


@pytest.mark.parametrize(("alpha", "biases"), [(0.1, "moving"), (10.0, "frozen")])
def test_ridge_takes_the_proximal_step(alpha: float, biases: str) -> None:
    first = mlp()
    for i in (0, 2):
        first[i].bias.requires_grad_(biases == "moving")
    tasks = [torch.randn(n, 6, dtype=torch.float64) for n in (9, 4)]
    memory = nscl.Memory(first, rule=nscl.Ridge(alpha), acts_on="displacement")
    optimizer = sgd(first.parameters())
    memory.protect(optimizer)
    for data in tasks:
        memory.remember([data])
    second = copy.deepcopy(first)
    by_hand = sgd(second.parameters())
    seen = [rows_of(second, data) for data in tasks]
    penalties, reference = {}, {}
    for i in seen[0]:
        X = torch.cat([rows[i] for rows in seen])
        if biases == "frozen":
            X = X[:, :-1]
        C = X.T @ X / len(X)
        mean = torch.linalg.eigvalsh(C).mean()
        penalties[i] = len(tasks) * C / (alpha * mean)
        reference[i] = stacked(second[i])[:, : len(C)]
    for step in range(6):
        x = torch.randn(8, 6, dtype=torch.float64)
        for model, opt in ((first, optimizer), (second, by_hand)):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
        for i, C in penalties.items():
            candidate = stacked(second[i])[:, : len(C)] - reference[i]
            D = minimiser(candidate, C)
            assert step or is_minimum(D, candidate, C)
            put(reference[i] + D, second[i])
    assert furthest(values(first), values(second)) < 1e-12


@torch.no_grad()
def put(matrix: Tensor, layer: nn.Linear) -> None:
    layer.weight.copy_(matrix[:, : layer.in_features])
    if matrix.shape[1] > layer.in_features:
        layer.bias.copy_(matrix[:, -1])


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (EXACT, torch.optim.AdamW),
        (nscl.Energy(0.2), torch.optim.SGD),
        (nscl.Ratio(30.0), torch.optim.AdamW),
    ],
)
def test_hard_rules_give_the_same_weights_for_both(rule: Any, kind: Any) -> None:
    model, old = mlp(), torch.randn(4, 6, dtype=torch.float64)
    results = []
    for acts_on in ("step", "displacement"):
        torch.manual_seed(1)
        scene = protected_scene(
            lambda p: kind(p, 1e-2, weight_decay=0.1),
            model=copy.deepcopy(model),
            old=old,
            rule=rule,
            acts_on=acts_on,
        )
        scene.train(10)
        scene.memory.remember([torch.randn(2, 6).double()])
        scene.train(10)
        results.append(values(scene.model))
    assert furthest(*results) < 1e-10
    assert furthest(results[0], values(model)) > 1e-3


def test_soft_rules_do_not() -> None:
    model, old = mlp(), torch.randn(4, 6, dtype=torch.float64)
    results = []
    for acts_on in ("step", "displacement"):
        torch.manual_seed(1)
        scene = protected_scene(
            model=copy.deepcopy(model), old=old, rule=nscl.Ridge(1.0), acts_on=acts_on
        )
        scene.train(10)
        results.append(scene.memory.forgetting().total.drift)
    assert results[1] < 0.5 * results[0]


def displaced(rule: Any = EXACT, **options: Any) -> Scene:
    return protected_scene(rule=rule, acts_on="displacement", **options)


def test_half_precision_is_rounded_once_instead_of_in_every_step() -> None:
    old, moved = torch.randn(3, 16).bfloat16(), {}
    for acts_on in ("step", "displacement"):
        torch.manual_seed(0)
        model = nn.Linear(16, 8).bfloat16()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6), acts_on=acts_on)  # type: ignore[arg-type]
        with memory.protect(optimizer):
            memory.remember([old])
            for _ in range(50):
                optimizer.zero_grad()
                model(torch.randn(9, 16).bfloat16()).square().sum().backward()
                optimizer.step()
            moved[acts_on] = memory.forgetting().total.relative
    assert moved["displacement"] < moved["step"] / 5


def test_a_layer_without_gradient_is_not_shrunk_again() -> None:
    scene = displaced(nscl.Ridge(1.0))
    scene.train()
    before = values(scene.model)
    scene.optimizer.zero_grad()
    scene.model[2](torch.randn(4, 7).double()).sum().backward()
    scene.optimizer.step()
    after = values(scene.model)
    assert torch.equal(after["0.weight"], before["0.weight"])
    assert torch.equal(after["0.bias"], before["0.bias"])
    assert not torch.equal(after["2.weight"], before["2.weight"])


class Gradless(torch.optim.SGD):
    """Moves parameters by means of its own, as optimizers with master gradients do."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(torch.ones_like(p))


def test_an_optimizer_that_needs_no_gradients_is_protected() -> None:
    scene = displaced(make=lambda p: Gradless(p, 0.1))
    scene.optimizer.step()
    assert scene.moved() < 1e-12
    assert not torch.equal(scene.model(-scene.old), torch.zeros(3, 3).double())


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_freezing_one_part_on_the_way_does_not_pull_the_other_back(part: str) -> None:
    # Weight and bias moved together so that old outputs stay: neither may go back alone.
    scene = displaced()
    scene.train()
    layer = scene.model[0]
    assert scene.moved() < 1e-12
    getattr(layer, part).requires_grad_(False)
    frozen = getattr(layer, part).detach().clone()
    scene.train()
    assert scene.moved() < 1e-12
    assert torch.equal(getattr(layer, part), frozen)
    getattr(layer, part).requires_grad_(True)
    scene.train()
    assert scene.moved() < 1e-12
    assert not torch.equal(getattr(layer, part), frozen)


def test_a_part_that_never_moves_keeps_the_whole_displacement_in_view() -> None:
    """A new parameter group makes a new plan; what has moved so far must still count."""
    model, old = mlp(), torch.randn(4, 6, dtype=torch.float64)
    model[0].bias.requires_grad_(False)
    results = []
    for interrupted in (False, True):
        torch.manual_seed(1)
        scene = displaced(nscl.Ridge(1.0), model=copy.deepcopy(model), old=old)
        scene.train(3)
        if interrupted:
            scene.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        scene.train(3)
        results.append(values(scene.model))
    assert furthest(*results) == 0.0


def test_a_loaded_memory_counts_from_where_it_was_made(tmp_path: Any) -> None:
    scene = displaced()
    scene.train()
    scene.memory.save(tmp_path / "memory.safetensors")
    loaded = nscl.Memory.load(tmp_path / "memory.safetensors", scene.model)
    assert loaded.acts_on == "displacement"
    scene.protection.remove()
    loaded.protect(scene.optimizer)
    scene.train()
    assert scene.moved() < 1e-12
    assert loaded.forgetting().total.drift < 1e-15


def test_frobenius_shortens_the_step_by_the_root_of_the_rank() -> None:
    old, model = torch.randn(3, 6, dtype=torch.float64), mlp()
    steps = []
    for scale in ("none", "frobenius"):
        scene = protected_scene(
            lambda p: torch.optim.SGD(p, 0.1), model=copy.deepcopy(model), old=old, scale=scale
        )
        before = {i: stacked(scene.model[i]) for i in (0, 2)}
        torch.manual_seed(2)
        scene.train(1)
        free = [layer.free for layer in scene.memory.report().layers]
        steps.append([stacked(scene.model[i]) - before[i] for i in (0, 2)])
    assert free == [4, 5]  # 6 + 1 and 7 + 1 features less three rows
    for plain, short, rank in zip(*steps, free, strict=True):
        torch.testing.assert_close(short * rank**0.5, plain, rtol=1e-12, atol=1e-15)
        assert plain.norm() > 1e-3


def test_frobenius_divides_every_group_by_its_own_norm() -> None:
    model = nn.Sequential(nn.Conv1d(4, 6, 2, groups=2, bias=False)).double()
    old = torch.zeros(2, 4, 2, dtype=torch.float64)
    old[0, :2] = torch.randn(2, 2)  # one row in the first group, two in the second
    old[:, 2:] = torch.randn(2, 2, 2)
    steps = []
    for scale in ("none", "frobenius"):
        scene = protected_scene(sgd, model=copy.deepcopy(model), old=old, scale=scale)
        before = values(scene.model)["0.weight"]
        torch.manual_seed(2)
        scene.train(1)
        steps.append(values(scene.model)["0.weight"] - before)
    for group, rank in ((slice(0, 3), 3), (slice(3, 6), 2)):
        torch.testing.assert_close(steps[1][group] * rank**0.5, steps[0][group])


def test_frobenius_and_displacement_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="again and again: use acts_on='step'"):
        nscl.Memory(mlp(), rule=nscl.Ratio(), scale="frobenius", acts_on="displacement")
