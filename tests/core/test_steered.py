"""A memory that projects as it is told."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.projection import Projection
from nscl.core.spectrum import Spectrum
from nscl.core.steered import Steered
from nscl.errors import ModelMismatchError


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    ).double()


def basis(groups: int, width: int, columns: int) -> Tensor:
    return torch.linalg.qr(torch.randn(groups, width, columns).double()).Q


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 2, 4, 4).double()).square().sum().backward()
    optimizer.step()


def steered(keep: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Steered]:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    memory = Steered(model, keep=keep)
    memory.protect(optimizer)
    return model, optimizer, memory


def test_steps_are_projected_as_told_from_then_on() -> None:
    model, optimizer, memory = steered()
    linear = model[4]  # type: ignore[index]
    M = basis(1, 17, 5)
    for told in (False, True):
        before = torch.cat([linear.weight, linear.bias[:, None]], 1).detach()
        step(model, optimizer)
        moved = torch.cat([linear.weight, linear.bias[:, None]], 1).detach() - before
        assert ((moved @ M[0]).abs().max() < 1e-12) == told
        assert moved.abs().max() > 1e-3
        memory.steer({"4": Projection(M, removes=True)})


@pytest.mark.parametrize("keep", [False, True])
def test_second_moments_are_those_of_a_memory(keep: bool) -> None:
    model, _, memory = steered(keep)
    plain = nscl.Memory.adam_nscl(model)
    plain.protect(guarded := torch.optim.SGD(model.parameters(), 0.1))
    batches = [torch.randn(8, 2, 4, 4).double() for _ in range(4)]
    plain.remember(batches[:2])
    first = memory.observe(batches[:2])
    assert set(first) == {"0", "4"}
    for name, moments in first.items():
        dense, noise = moments.written_out()
        assert torch.equal(dense, plain._state.covariances[name].dense())
        assert noise.shape == dense.shape[:2]
    second = memory.observe(batches[2:])
    if keep:
        plain.remember(batches[2:])
    assert second["4"].covariance.rows == (32 if keep else 16)
    assert bool(memory._state.covariances) == keep
    assert memory.tasks == 2
    assert guarded.param_groups


def test_forgetting_is_exact_where_second_moments_are_kept() -> None:
    model, optimizer, memory = steered(keep=True)
    plain = nscl.Memory.adam_nscl(model)
    plain.protect(guarded := torch.optim.SGD(model.parameters(), 0.1))
    old = [torch.randn(8, 2, 4, 4).double()]
    plain.remember(old)
    memory.observe(old)
    memory.steer({"0": Projection(basis(2, 10, 3), removes=True)})
    step(model, optimizer)
    assert memory.forgetting().to_dict() == plain.forgetting().to_dict()
    assert memory.forgetting().total.drift > 0
    assert guarded.param_groups


def test_movement_is_counted_in_held_directions() -> None:
    model, optimizer, memory = steered()
    memory.observe([torch.randn(8, 2, 4, 4).double()])
    M = basis(1, 17, 5) * torch.linspace(0.2, 0.9, 5)  # softly held, so that it moves
    memory.steer({"4": Projection(M, removes=True)})
    linear = model[4]  # type: ignore[index]
    before = torch.cat([linear.weight, linear.bias[:, None]], 1).detach()
    step(model, optimizer)
    moved = torch.cat([linear.weight, linear.bias[:, None]], 1).detach() - before
    found = memory.forgetting()
    assert found.total.drift == pytest.approx(float((moved @ M[0]).square().sum()))
    assert found.total.relative == pytest.approx(
        float((moved @ M[0]).square().sum() / (before @ M[0]).square().sum())
    )
    assert found.statistics[0].shift > 0


@pytest.mark.parametrize("keep", [False, True])
def test_the_state_brings_everything_back(keep: bool) -> None:
    model, optimizer, memory = steered(keep)
    memory.observe([torch.randn(8, 2, 4, 4).double()])
    weights = torch.rand(1, 17).double()
    told = Spectrum(torch.rand(1, 17).double(), weights, torch.zeros(1, 1).double())
    memory.steer(
        {"0": Projection(basis(2, 10, 3), removes=True),
         "4": Projection(basis(1, 17, 3), removes=False, scale=0.5)},
        {"4": told},
    )  # fmt: skip
    other = Steered(model, keep=keep)
    other.protect(torch.optim.SGD(model.parameters(), 0.1))
    other.load_state_dict(memory.state_dict())
    step(model, optimizer)
    assert other.forgetting().to_dict() == memory.forgetting().to_dict()
    assert other.projections.keys() == memory.projections.keys()
    for name, projection in memory.projections.items():
        again = other.projections[name]
        assert torch.equal(again.basis, projection.basis)
        assert (again.removes, again.scale) == (projection.removes, projection.scale)
    line = next(layer for layer in other.report().layers if layer.name == "4")
    assert line.free == pytest.approx(float(weights.sum()))
    assert line.protected_by == "null space"


def test_tokens_that_were_seen_in_any_pass_are_held() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    memory = Steered(model)
    memory.protect(optimizer)
    assert set(memory.observe([torch.tensor([[0, 1]])])) == {"2"}
    memory.observe([torch.tensor([[1, 3]])])
    again = Steered(model)
    again.protect(optimizer2 := torch.optim.SGD(model.parameters(), 1.0))
    again.load_state_dict(memory.state_dict())
    for guarded in (optimizer, optimizer2):
        before = model[0].weight.detach().clone()
        guarded.zero_grad()
        model(torch.tensor([[0, 1], [2, 3], [4, 4]])).square().sum().backward()
        guarded.step()
        moved = (model[0].weight.detach() != before).any(1)
        assert moved.tolist() == [False, False, True, False, True]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    _, _, memory = steered()
    with pytest.raises(ModelMismatchError, match=r"'7'.*no such block"):
        memory.steer({"7": Projection(basis(1, 17, 1), removes=True)})
    with pytest.raises(ModelMismatchError, match=r"16 features.*'4'.*17 features"):
        memory.steer({"4": Projection(basis(1, 16, 1), removes=True)})
    with pytest.raises(nscl.NsclError, match="state_dict"):
        memory.save(tmp_path / "m.safetensors")
    with pytest.raises(nscl.NsclError, match="merged"):
        memory.merge(memory)


def test_a_layer_that_no_pass_has_run_has_not_moved() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.used(x)
            return found

    model = Branches()
    memory = Steered(model)
    memory.protect(optimizer := torch.optim.SGD(model.parameters(), 1.0))
    assert set(memory.observe([torch.randn(4, 3)])) == {"used"}
    every = {n: Projection(torch.eye(4)[None] * 0.5, removes=True) for n in ("used", "spare")}
    memory.steer(every)
    model(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()
    found = memory.forgetting()
    assert [layer.name for layer in found.layers] == ["used"]
    assert found.total.drift > 0
