"""Unprotected steps leave a trace, protected ones do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import nscl
from tests.core.protected_scene import EXACT, mlp, new_data, protected_scene, sgd

LEFT = r"moved out of the null space since the last remember: {}: an unprotected optimizer"


def step(model: nn.Module, optimizer: Optimizer, old: Tensor, steps: int = 1) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(new_data(old)).square().mean().backward()
        optimizer.step()


def test_a_second_optimizer_is_noticed_while_the_first_is_alive() -> None:
    scene = protected_scene()
    step(scene.model, sgd(scene.model.parameters()), scene.old)
    assert scene.moved() > 1e-4
    note = scene.memory.report().notes[-1]
    assert note.startswith("moved out of the null space since the last remember: 0, 2: ")
    with pytest.warns(nscl.NsclWarning, match=LEFT.format("0, 2")) as caught:
        report = scene.memory.remember([scene.old])
    assert caught[0].filename == __file__
    assert report.notes == ()  # counted from now on


def test_autocast_does_not_disturb_the_check() -> None:
    scene = protected_scene(model=mlp().float(), old=torch.randn(3, 6), rule=nscl.Tolerance(1e-6))
    scene.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert scene.memory.report().notes == ()
        step(scene.model, sgd(scene.model.parameters()), scene.old)
        assert scene.memory.report().notes[-1].startswith("moved out of the null space")
        with pytest.warns(nscl.NsclWarning, match=LEFT.format("0, 2")):
            scene.memory.remember([scene.old])


class Sharpness(Optimizer):
    """SAM as it is usually written: the inner optimizer makes the step."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(list(parameters), {"lr": 0.1})
        self.base_optimizer = torch.optim.SGD(self.param_groups, 0.1)

    def second_step(self) -> None:
        self.base_optimizer.step()


def test_the_inner_step_of_a_wrapper_is_noticed() -> None:
    scene = protected_scene(Sharpness)
    scene.backward()
    scene.optimizer.second_step()  # type: ignore[attr-defined]
    with pytest.warns(nscl.NsclWarning, match="the inner one of a wrapper"):
        scene.memory.remember([scene.old])


def test_layers_of_an_unprotected_optimizer_are_named_before_and_after_they_move() -> None:
    model, old = mlp(), torch.randn(3, 6, dtype=torch.float64)
    first, second = sgd(model[0].parameters()), sgd(model[2].parameters())
    memory = nscl.Memory(model, rule=EXACT)
    memory.protect(first)
    assert memory.report().notes == ()
    assert memory.remember([old]).notes[-1].startswith("in no protected optimizer: 2: ")
    for optimizer in (first, second):
        step(model, optimizer, old)
    with pytest.warns(nscl.NsclWarning, match=LEFT.format("2")):
        memory.remember([old])
    memory.protect(second)
    assert memory.report().notes == ()


def test_biases_without_their_weights_are_named_because_they_do_not_move() -> None:
    model, old = mlp(), torch.randn(3, 6, dtype=torch.float64)
    matrices = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], 1e-2)
    rest = torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2], 1e-2)
    memory = nscl.Memory(model, rule=EXACT)
    memory.protect(matrices)
    memory.protect(rest)
    (note,) = memory.remember([old]).notes
    assert note.startswith("cannot move: 0.bias, 2.bias: a bias by itself moves all old outputs")
    before = [model[i].bias.detach().clone() for i in (0, 2)]
    step(model, rest, old)
    assert all(torch.equal(model[i].bias, b) for i, b in zip((0, 2), before, strict=True))
    model[0].bias.requires_grad_(False)
    assert memory.report().notes[0].startswith("cannot move: 2.bias: ")


def test_what_is_not_trained_needs_no_protection() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    assert protected_scene(model=model).memory.report().notes == ()


def test_frozen_parameters_and_tokens_are_watched_too() -> None:
    model = nn.Sequential(nn.Embedding(6, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()
    scene = protected_scene(model=model, old=torch.tensor([[1, 2]]), norms="freeze")
    with torch.no_grad():
        model[0].weight[3] += 1  # a token never seen
    assert scene.memory.report().notes == ()
    with torch.no_grad():
        model[0].weight[2] += 1
        model[1].bias += 1
    with pytest.warns(nscl.NsclWarning, match=LEFT.format(r"1\.bias, 0")):
        scene.memory.remember([scene.old])


def images(dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(64, 3),
    )
    return model.to(dtype).eval(), torch.randn(6, 4, 2, 2).to(dtype)


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": sgd,
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2),
}
RULES = [nscl.Ratio(10.0), nscl.Energy(0.05), nscl.Tolerance(1e-6), nscl.Ridge(1.0)]


@pytest.mark.parametrize(
    ("make", "dtype"),
    [("adam", torch.float64), ("adam", torch.float32), ("sgd", torch.bfloat16)],
)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_protected_steps_leave_no_trace(rule: Any, make: Any, dtype: torch.dtype) -> None:
    for options in ({}, {"acts_on": "displacement"}, {"scale": "frobenius"}):
        model, old = images(dtype)
        scene = protected_scene(
            OPTIMIZERS[make], model=model, old=old, rule=rule, norms="freeze", **options
        )
        step(model, scene.optimizer, old, 30)
        assert not any("null space since" in note for note in scene.memory.report().notes)
        scene.memory.remember([old])  # a warning would be an error


@pytest.mark.parametrize("rule", RULES[:3], ids=lambda rule: type(rule).__name__)
def test_a_frozen_bias_is_not_an_unprotected_update(rule: Any) -> None:
    """Its weight is projected by another null space for as long as that lasts."""
    scene = protected_scene(model=mlp(), old=torch.randn(40, 6, dtype=torch.float64), rule=rule)
    scene.model[0].bias.requires_grad_(False)
    scene.train(5)
    scene.model[0].bias.requires_grad_(True)
    scene.train(5)
    scene.memory.remember([scene.old])


def test_rounding_of_steps_before_a_save_is_not_an_unprotected_update(tmp_path: Path) -> None:
    """Small steps in one free direction of many: rounding is a good part of what has moved."""
    adam, old = (lambda p: torch.optim.Adam(p, 1e-7)), torch.randn(40, 40)
    scene = protected_scene(adam, model=nn.Linear(40, 40), old=old, rule=nscl.Tolerance(1e-6))
    step(scene.model, scene.optimizer, old, 200)
    scene.memory.save(tmp_path / "m")
    nscl.Memory.load(tmp_path / "m", scene.model)
    resumed = nscl.Memory(scene.model, rule=nscl.Tolerance(1e-6))
    resumed.load_state_dict(scene.memory.state_dict())
    scene.protection.remove()
    resumed.protect(scene.optimizer)
    step(scene.model, scene.optimizer, old)
    resumed.remember([old])


def test_a_model_that_was_cut_to_half_precision_leaves_no_trace(tmp_path: Path) -> None:
    plain, old = (lambda p: torch.optim.SGD(p, 0.1)), torch.randn(8, 6)
    scene = protected_scene(plain, model=mlp().float(), old=old, rule=nscl.Energy(0.05))
    scene.model.to(torch.bfloat16)
    x = new_data(old).bfloat16()
    for _ in range(300):
        scene.optimizer.zero_grad()
        scene.model(x).square().mean().backward()
        scene.optimizer.step()
    scene.memory.save(tmp_path / "m")
    nscl.Memory.load(tmp_path / "m", scene.model)


@pytest.mark.parametrize("scale", ["none", "frobenius"])
def test_groups_of_which_one_is_held_and_one_is_free_leave_no_trace(scale: Any) -> None:
    """Neither side of such a projector is thin, so it is stored as one matrix."""
    model = nn.Conv2d(4, 4, 3, groups=2, bias=False).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-8), scale=scale)
    memory.protect(optimizer)
    old = torch.randn(1, 4, 8, 8).double()
    old[:, 2:] = 1.0
    memory.remember([old])
    assert memory._state.projections["model"].dense  # type: ignore[union-attr]
    model(torch.randn(4, 4, 5, 5).double()).square().sum().backward()
    optimizer.step()
    assert memory.report().remarks == ()
    with torch.no_grad():
        model.weight += 10.0
    assert "moved out of the null space" in memory.report().remarks[0]
