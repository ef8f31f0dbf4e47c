"""Displacements under Penalty and Budget, as an optimizer makes them; and every k steps."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl
from nscl.core.covariance.packed import unpack

OLD, NEW = torch.randn(40, 4).double(), torch.randn(40, 4).double()

LABELS = torch.randint(0, 3, (40,))

unprotected = pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")


def network(**kwargs: Any) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(4, 5, **kwargs), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3, **kwargs))
    return nn.Sequential(*layers).double()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(NEW), LABELS).backward()
        optimizer.step()


def protected(
    rule: Any, *, model: nn.Module | None = None, lr: float = 0.05, **options: Any
) -> tuple[nn.Module, nscl.Memory, torch.optim.Optimizer]:
    model = network() if model is None else model
    memory = nscl.Memory(model, rule=rule, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    memory.protect(optimizer)
    memory.remember([OLD])
    return model, memory, optimizer


def ratios(memory: nscl.Memory, name: str) -> tuple[Tensor, Tensor]:
    """C̃ and G̃ from what is saved."""
    state = memory.state_dict()
    C = unpack(state["tensors"][f"covariance/{name}"])[0]
    G = unpack(state["tensors"][f"gradient/{name}"])[0]
    return C / C.diagonal().mean(), G / G.diagonal().mean()


def test_one_step_is_the_minimiser_with_the_bias_as_one_more_feature() -> None:
    model, memory, optimizer = protected(nscl.Penalty(3.0), every=1, lr=0.02)
    plain = copy.deepcopy(model)
    other = torch.optim.Adam(plain.parameters(), 0.02)
    train(model, optimizer, 1)
    train(plain, other, 1)
    C, G = ratios(memory, "0")
    reference = memory.state_dict()["tensors"]
    stacked = [torch.cat([m[0].weight, m[0].bias[:, None]], 1).detach() for m in (model, plain)]
    before = torch.cat([reference["reference/0.weight"], reference["reference/0.bias"][:, None]], 1)
    system = torch.eye(25, dtype=torch.float64) + 3.0 * 0.02 * torch.kron(G, C)
    truth = before + torch.linalg.solve(system, (stacked[1] - before).flatten()).view(5, 5)
    assert torch.allclose(stacked[0], truth, atol=1e-12)


def test_norm_layers_are_shrunk_by_their_own_fisher() -> None:
    model, memory, optimizer = protected(nscl.Penalty(3.0), every=1, lr=0.02)
    plain = copy.deepcopy(model)
    train(model, optimizer, 1)
    train(plain, torch.optim.Adam(plain.parameters(), 0.02), 1)
    tensors = memory.state_dict()["tensors"]
    fisher, before = tensors["fisher/1.weight"], tensors["reference/1.weight"]
    truth = before + (plain[1].weight - before) / (1 + 3.0 * 0.02 * fisher / fisher.mean())
    assert torch.allclose(model[1].weight, truth)


@pytest.mark.parametrize("rule", [nscl.Penalty(1e-300), nscl.Budget(1e30)])
def test_a_rule_that_asks_for_nothing_is_plain_training_bit_for_bit(rule: Any) -> None:
    model, memory, optimizer = protected(rule, every=3)
    plain = copy.deepcopy(model)
    train(model, optimizer, 10)
    memory.flush()
    train(plain, torch.optim.Adam(plain.parameters(), 0.05), 10)
    assert all(map(torch.equal, model.parameters(), plain.parameters()))


@pytest.mark.parametrize("factors", ["kronecker", "input"])
@pytest.mark.parametrize("every", [1, 4])
def test_a_budget_is_never_exceeded(factors: Any, every: int) -> None:
    model, memory, optimizer = protected(nscl.Budget(0.01), factors=factors, every=every)
    for _ in range(5):
        train(model, optimizer, 3)
        for layer in memory.forgetting().layers:
            drift = layer.relative if factors == "input" else layer.weighed
            assert drift is not None
            assert drift <= 0.01 * (1 + 1e-9)
    assert memory.forgetting().total.relative > 1e-4  # and it is used


def test_every_differs_from_single_steps_to_second_order_only() -> None:
    def distance(lr: float) -> float:
        ends = []
        for every in (1, 2):
            model, memory, _ = protected(nscl.Penalty(1.0), every=every)
            optimizer = torch.optim.SGD(model.parameters(), lr)
            with memory.protect(optimizer):
                train(model, optimizer, 2)
            ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return float((ends[0] - ends[1]).norm())

    assert distance(1e-3) / distance(1e-4) == pytest.approx(100, rel=0.1)


def test_going_back_to_a_state_forgets_the_plan_of_the_weights_before() -> None:
    model, memory, optimizer = protected(nscl.Penalty(10.0), every=5)
    (protection,) = memory._protections.all
    train(model, optimizer, 3)
    parts = (model, optimizer, protection)
    saved = copy.deepcopy([part.state_dict() for part in parts])
    remembered = copy.deepcopy(memory.state_dict(flush=False))
    train(model, optimizer, 4)
    memory.flush()
    truth = copy.deepcopy(model.state_dict())
    memory.remember([OLD + 1])  # another reference, another plan
    train(model, optimizer, 2)
    memory.load_state_dict(remembered)
    for part, state in zip(parts, saved, strict=True):
        part.load_state_dict(state)
    train(model, optimizer, 4)
    memory.flush()
    assert all(torch.equal(truth[name], value) for name, value in model.state_dict().items())


def test_a_layer_that_was_not_moved_is_not_shrunk_again() -> None:
    model, _, optimizer = protected(nscl.Penalty(5.0), every=1)
    train(model, optimizer, 3)
    kept = model[0].weight.detach().clone()
    optimizer.zero_grad()
    F.cross_entropy(model[3](model[:3](NEW).detach()), LABELS).backward()
    optimizer.step()
    assert torch.equal(model[0].weight, kept)


@pytest.mark.parametrize("fixed", ["weight", "bias"])
def test_what_stays_put_takes_its_features_along(fixed: str) -> None:
    model = network()
    getattr(model[0], fixed).requires_grad_(False)
    moving = [p for p in model.parameters() if p.requires_grad]
    memory = nscl.Memory(model, rule=nscl.Penalty(3.0), every=1)
    optimizer = torch.optim.Adam(moving, 0.02)
    memory.protect(optimizer)
    memory.remember([OLD])
    plain = copy.deepcopy(model)
    train(model, optimizer, 1)
    train(plain, torch.optim.Adam([p for p in plain.parameters() if p.requires_grad], 0.02), 1)
    C, G = ratios(memory, "0")
    index = torch.arange(4) if fixed == "bias" else torch.tensor([4])
    name = "weight" if fixed == "bias" else "bias"
    before = memory.state_dict()["tensors"][f"reference/0.{name}"]
    delta = (getattr(plain[0], name) - before).detach().flatten()
    system = torch.eye(delta.numel()).double() + 3.0 * 0.02 * torch.kron(G, C[index][:, index])
    truth = before + torch.linalg.solve(system, delta).view_as(before)
    assert torch.allclose(getattr(model[0], name), truth, atol=1e-12)
    assert getattr(model[0], fixed).grad is None


@unprotected
@pytest.mark.parametrize("layer", [0, 1])
def test_the_predicted_loss_is_the_measured_one_on_linear_layers(layer: int) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).double()
    x = torch.randn(20_000, 4).double()
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember([x], likelihood="gaussian")
    before = model(x).detach()
    direction = torch.randn_like(model[layer].weight)
    with torch.no_grad():
        model[layer].weight += 1e-3 * direction
    predicted = memory.forgetting().total.loss
    measured = 0.5 * float((model(x).detach() - before).square().sum(1).mean())
    assert predicted == pytest.approx(measured, rel=0.05)


@unprotected
def test_halves_are_merged_and_files_bring_everything_back(tmp_path: Any) -> None:
    def mean(output: Tensor, batch: Tensor) -> Tensor:
        return output.cos().sum(1).mean()

    model = network()
    memories = []
    for data in ([OLD], [OLD[:20]], [OLD[20:]]):
        memory = nscl.Memory(model, rule=nscl.Budget(0.1))
        memory.remember(data, loss=mean)
        memories.append(memory)
    whole, one, two = memories
    one.merge(two)
    for name in ("gradient/0", "gradient/3", "covariance/0"):
        ours, theirs = (m.state_dict()["tensors"][name] for m in (whole, one))
        assert torch.allclose(ours, theirs)
    whole.save(tmp_path / "memory.safetensors")
    loaded = nscl.Memory.load(tmp_path / "memory.safetensors", model)
    assert loaded.options() == whole.options()
    assert loaded.options()["rule"] == {"name": "Budget", "drift": 0.1}
    found = loaded.state_dict()["tensors"]
    for name, tensor in whole.state_dict()["tensors"].items():
        assert torch.equal(tensor, found[name]), name


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2e-3), (torch.float16, 2e-4)])
def test_half_precision_weights_are_shrunk_in_float32(dtype: torch.dtype, rounding: float) -> None:
    model = network().to(dtype)
    memory = nscl.Memory(model, rule=nscl.Budget(1e-4), every=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    memory.protect(optimizer)
    memory.remember([OLD.to(dtype)])
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(NEW.to(dtype)).float(), LABELS).backward()
        optimizer.step()
    weighed = memory.forgetting().total.weighed
    assert weighed is not None
    assert weighed < rounding


@pytest.mark.parametrize("rule", [nscl.Penalty(3.0), nscl.Budget(1e-3)])
def test_factors_on_disk_hold_as_those_in_ram(rule: Any) -> None:
    ends = []
    for offload in (None, "disk"):
        model, memory, optimizer = protected(rule, every=2, offload=offload)
        train(model, optimizer, 5)
        memory.remember([OLD + 1])
        train(model, optimizer, 5)
        ends.append((memory.forgetting(), [p.detach().clone() for p in model.parameters()]))
    assert memory.nbytes["covariances"] == 0
    assert ends[0][0] == ends[1][0]
    assert all(map(torch.equal, ends[0][1], ends[1][1]))


def test_what_is_excluded_moves_as_it_would_alone() -> None:
    model, memory, optimizer = protected(nscl.Penalty(1e6), every=1, exclude=("3",))
    plain = copy.deepcopy(model)
    train(model, optimizer, 1)
    train(plain, torch.optim.Adam(plain.parameters(), 0.05), 1)
    assert torch.equal(model[3].weight, plain[3].weight)
    assert not torch.allclose(model[0].weight, plain[0].weight, atol=1e-3)
    assert [layer.name for layer in memory.forgetting().layers] == ["0"]


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="whole displacement"):
        nscl.Memory(network(), rule=nscl.Penalty(), acts_on="step")
    with pytest.raises(ValueError, match=r"inputs of a layer only.*nscl\.Penalty"):
        nscl.Memory(network(), rule=nscl.Ratio(), factors="kronecker")
    with pytest.raises(ValueError, match="acts_on='displacement'"):
        nscl.Memory(network(), rule=nscl.Ratio(), every=2)
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="every must be a whole number"):
            nscl.Memory(network(), rule=nscl.Penalty(), every=wrong)  # type: ignore[arg-type]
    for bad in (nscl.Penalty, nscl.Budget):
        with pytest.raises(ValueError, match="must be a positive number"):
            bad(0.0)
