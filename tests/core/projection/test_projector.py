"""A memory whose projections come from a function instead of a rule."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.covariance.covariance import Covariance
from nscl.core.model.block import Block
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.spectrum import Spectrum
from nscl.errors import ModelMismatchError, UnsupportedError


class Given:
    """A projector that returns what it was given, and keeps what it was called with."""

    def __init__(self, projections: dict[str, Projection] | None = None) -> None:
        self.projections = projections or {}
        self.covariances: dict[str, Covariance] = {}
        self.previous: dict[str, Projection | None] = {}

    def __call__(
        self, block: Block, covariance: Covariance, previous: Projection | None
    ) -> tuple[Projection, Spectrum]:
        self.covariances[block.name] = covariance
        self.previous[block.name] = previous
        return self.projections.get(block.name, free(block)), spectrum(block)


def free(block: Block) -> Projection:
    return Projection(torch.zeros(block.groups, block.width, 0).double(), removes=True)


def spectrum(block: Block) -> Spectrum:
    weights = torch.linspace(0, 1, block.width).double().repeat(block.groups, 1)
    return Spectrum(weights.flip(-1), weights, torch.zeros(block.groups, 1).double())


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    ).double()


def batch() -> Tensor:
    return torch.randn(8, 2, 4, 4).double()


def basis(groups: int, width: int, columns: int) -> Tensor:
    return torch.linalg.qr(torch.randn(groups, width, columns).double()).Q


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(batch()).square().sum().backward()
    optimizer.step()


def protected(
    given: Given, *, keep: bool = False
) -> tuple[nn.Module, torch.optim.Optimizer, nscl.Memory]:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    memory = nscl.Memory(model, projector=given, keep_covariances=keep, statistics="update")
    memory.protect(optimizer)
    return model, optimizer, memory


def linear(model: nn.Module) -> Tensor:
    layer = model[4]  # type: ignore[index]
    return torch.cat([layer.weight, layer.bias[:, None]], 1).detach()


def test_steps_are_projected_as_the_function_says_from_the_next_remember_on() -> None:
    M = basis(1, 17, 5)
    model, optimizer, memory = protected(Given({"4": Projection(M, removes=True)}))
    for is_held in (False, True):
        before = linear(model)
        step(model, optimizer)
        moved = linear(model) - before
        assert ((moved @ M[0]).abs().max() < 1e-12) == is_held
        assert moved.abs().max() > 1e-3
        memory.remember([batch()])


@pytest.mark.parametrize("keep", [False, True])
def test_the_function_gets_the_covariances_of_a_memory(keep: bool) -> None:
    given = Given()
    model, _, memory = protected(given, keep=keep)
    plain = nscl.Memory.adam_nscl(model)
    plain.protect(other := torch.optim.SGD(model.parameters(), 0.1))
    batches = [batch() for _ in range(4)]
    plain.remember(batches[:2])
    memory.remember(batches[:2])
    assert set(given.covariances) == {"0", "4"}
    assert given.previous == {"0": None, "4": None}
    for name, covariance in given.covariances.items():
        assert torch.equal(covariance.dense(), plain._state.covariances[name].dense())
    memory.remember(batches[2:])
    assert given.covariances["4"].rows == (32 if keep else 16)
    assert isinstance(given.previous["4"], Projection)
    assert bool(memory._state.covariances) == keep
    assert memory.tasks == 2
    assert other.param_groups


def test_forgetting_is_exact_where_covariances_are_kept() -> None:
    given = Given({"0": Projection(basis(2, 10, 3), removes=True)})
    model, optimizer, memory = protected(given, keep=True)
    plain = nscl.Memory.adam_nscl(model)
    plain.protect(other := torch.optim.SGD(model.parameters(), 0.1))
    old = [batch()]
    plain.remember(old)
    memory.remember(old)
    step(model, optimizer)
    assert memory.forgetting().to_dict() == plain.forgetting().to_dict()
    assert memory.forgetting().total.drift > 0
    assert other.param_groups


def test_without_covariances_movement_is_counted_in_held_directions() -> None:
    M = basis(1, 17, 5) * torch.linspace(0.2, 0.9, 5)  # softly held, so that it moves
    model, optimizer, memory = protected(Given({"4": Projection(M, removes=True)}))
    memory.remember([batch()])
    before = linear(model)
    step(model, optimizer)
    moved = linear(model) - before
    found = memory.forgetting()
    assert found.total.drift == pytest.approx(float((moved @ M[0]).square().sum()))
    assert found.layers[-1].relative == pytest.approx(
        float((moved @ M[0]).square().sum() / (before @ M[0]).square().sum())
    )
    assert found.statistics[0].shift > 0


@pytest.mark.parametrize("keep", [False, True])
def test_the_state_brings_everything_back(keep: bool) -> None:
    given = Given(
        {
            "0": Projection(basis(2, 10, 3), removes=True),
            "4": Projection(basis(1, 17, 3), removes=False, scale=0.5),
        }
    )
    model, optimizer, memory = protected(given, keep=keep)
    memory.remember([batch()])
    again = nscl.Memory(model, projector=Given(), keep_covariances=keep, statistics="update")
    again.protect(torch.optim.SGD(model.parameters(), 0.1))
    again.load_state_dict(memory.state_dict())
    step(model, optimizer)
    assert again.forgetting().to_dict() == memory.forgetting().to_dict()
    kept, restored = (m.state_dict()["projections"] for m in (memory, again))
    assert kept.keys() == restored.keys() == {"0", "4"}
    for name, projection in kept.items():
        assert torch.equal(restored[name].pop("basis"), projection.pop("basis"))
        assert restored[name] == projection
    line = next(layer for layer in again.report().layers if layer.name == "4")
    assert line.free == pytest.approx(17 / 2)
    assert line.protected_by == "null space"


def test_tokens_that_were_seen_in_any_pass_are_held() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2)).double()
    first = torch.optim.SGD(model.parameters(), 1.0)
    memory = nscl.Memory(model, projector=(given := Given()), keep_covariances=False)
    memory.protect(first)
    memory.remember([torch.tensor([[0, 1]])])
    assert set(given.covariances) == {"2"}
    memory.remember([torch.tensor([[1, 3]])])
    again = nscl.Memory(model, projector=Given(), keep_covariances=False)
    again.protect(second := torch.optim.SGD(model.parameters(), 1.0))
    again.load_state_dict(memory.state_dict())
    for optimizer in (first, second):
        before = model[0].weight.detach().clone()
        optimizer.zero_grad()
        model(torch.tensor([[0, 1], [2, 3], [4, 4]])).square().sum().backward()
        optimizer.step()
        moved = (model[0].weight.detach() != before).any(1)
        assert moved.tolist() == [False, False, True, False, True]


def test_a_projection_must_fit_its_block() -> None:
    _, _, memory = protected(Given({"4": Projection(basis(1, 16, 1), removes=True)}))
    with pytest.raises(ModelMismatchError, match=r"16 features.*'4'.*17 features"):
        memory.remember([batch()])
    assert memory.tasks == 0
    spare = {"7": Projection(basis(1, 17, 1), removes=True)}
    with pytest.raises(ModelMismatchError, match=r"'7'.*no such block"):
        memory.load_state_dict({**memory.state_dict(), "projections": spare})


def test_what_only_a_rule_can_do_is_refused(tmp_path: Path) -> None:
    model, _, memory = protected(Given())
    plain = nscl.Memory(model)
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("saved.*state_dict", lambda: memory.save(tmp_path / "m.safetensors")),
        ("merged", lambda: memory.merge(plain)),
        ("merged", lambda: plain.merge(memory)),
        ("with a projector", lambda: plain.load_state_dict(memory.state_dict())),
        ("with no projector", lambda: memory.load_state_dict(plain.state_dict())),
    ]
    for message, attempt in refused:
        with pytest.raises(nscl.NsclError, match=message):
            attempt()


@pytest.mark.parametrize(
    "options",
    [{"rule": nscl.Ratio(3.0)}, {"scale": "frobenius"}, {"acts_on": "displacement"},
     {"factors": "kronecker"}],
)  # fmt: skip
def test_a_projector_replaces_the_rule(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"cannot be combined with {next(iter(options))}="):
        nscl.Memory(network(), projector=Given(), **options)


def test_a_projector_is_a_function_and_a_rule_needs_covariances() -> None:
    with pytest.raises(TypeError, match="projector must be a function"):
        nscl.Memory(network(), projector=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep_covariances=False needs"):
        nscl.Memory(network(), keep_covariances=False)


def test_a_bias_that_the_optimizer_leaves_out_is_refused() -> None:
    model = nn.Linear(3, 2)
    memory = nscl.Memory(model, projector=Given())
    memory.protect(optimizer := torch.optim.SGD([model.weight], 1.0))
    memory.remember([torch.randn(4, 3)])
    model(torch.randn(4, 3)).sum().backward()
    with pytest.raises(UnsupportedError, match="together with its bias"):
        optimizer.step()


def test_a_layer_that_no_pass_has_run_has_not_moved() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.used(x)
            return found

    model = Branches()
    every = {n: Projection(torch.eye(4)[None] * 0.5, removes=True) for n in ("used", "spare")}
    memory = nscl.Memory(model, projector=(given := Given(every)), keep_covariances=False)
    memory.load_state_dict({**memory.state_dict(), "projections": every})
    memory.protect(optimizer := torch.optim.SGD(model.parameters(), 1.0))
    memory.remember([torch.randn(4, 3)])
    assert set(given.covariances) == {"used"}
    model(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()
    found = memory.forgetting()
    assert [layer.name for layer in found.layers] == ["used"]
    assert found.total.drift > 0
    memory.remember([torch.randn(4, 3)])  # looks for layers that have moved
    memory.load_state_dict(memory.state_dict())
