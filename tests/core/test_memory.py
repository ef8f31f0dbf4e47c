"""``nscl.Memory`` as its users meet it."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl
from tests.core.memories import hooks

EVERY = [nscl.Ratio(10.0), nscl.Energy(0.05), nscl.Tolerance(1e-10), nscl.Ridge(10.0)]

unprotected = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def train(model: nn.Module, optimizer: Any, x: Tensor, labels: Tensor, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).float(), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_row_5_of_the_sanity_table() -> None:
    """A bias is one more feature: ΔW x + Δb = 0 on old x."""
    model, old = nn.Linear(6, 3).double(), torch.randn(3, 6).double()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    memory.remember([old])
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    model(torch.randn(9, 6).double()).square().sum().backward()
    optimizer.step()
    dW, db = model.weight.detach() - weight, model.bias.detach() - bias
    assert (old @ dW.mT + db).abs().max() < 1e-12
    assert db.abs().max() > 1e-3


@unprotected
@pytest.mark.parametrize(("rule", "repeat"), [(EVERY[0], False), (EVERY[2], True)])
def test_float32_models_free_what_rank_deficient_data_never_use(rule: Any, repeat: bool) -> None:
    model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 20), nn.Linear(20, 2))
    old = torch.randn(600, 5) @ torch.randn(5, 40)
    old = old[torch.arange(600) % 4] if repeat else old
    memory = nscl.Memory(model, rule=rule)
    memory.remember(old.split(100))
    limits = {"0": 4, "2": 4, "3": 4} if repeat else {"0": 6}
    for name, rank in limits.items():
        weights = memory._state.spectra[name].weights
        assert int((weights == 1).sum()) >= weights.numel() - rank, name


@unprotected
def test_tolerance_frees_in_float32_what_it_frees_in_float64() -> None:
    """Smooth features have energy in every direction, most of it below float32's rounding."""
    rows = torch.rand(2000, 10)
    free = {}
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(10, 128), nn.Tanh(), nn.Linear(128, 2)).to(dtype)
        memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10))
        free[dtype] = memory.remember(rows.to(dtype).split(250)).layers[1].free
    assert free[torch.float32] == free[torch.float64]


@unprotected
def test_a_dead_channel_changes_nothing_among_the_living() -> None:
    old = torch.randn(50, 2, 5, 5).relu()
    with_dead = torch.cat([old, torch.zeros_like(old[:, :1])], 1)
    reports = []
    for images in (old, with_dead):
        memory = nscl.Memory(nn.Conv2d(images.shape[1], 4, 3, padding=1), rule=EVERY[0])
        reports.append(memory.remember([images]).layers[0])
    assert reports[1].features == reports[0].features + 9
    assert reports[1].free == reports[0].free + 9
    assert reports[1].share == pytest.approx(reports[0].share, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norms", ["ewc", "freeze"])
def test_half_precision_models_work(dtype: torch.dtype, norms: Any) -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 8),
        nn.LayerNorm(8),
        nn.Linear(8, 3),
    ).to(dtype)
    model.eval()
    old = torch.randn(2, 2, 4, 4).to(dtype)[torch.arange(8) % 2]
    before = model(old).detach()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-4), norms=norms)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    memory.protect(optimizer)
    report = memory.remember([old])
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert all(t.dtype == torch.float64 for n, t in tensors(memory) if n.startswith("covariance"))
    assert 0 < report.layers[1].free < report.layers[1].features
    with torch.no_grad():
        start = [p.clone() for p in model.parameters()]
    x, labels = torch.randn(6, 2, 4, 4).to(dtype), torch.arange(6) % 3
    train(model, optimizer, x, labels, 5)
    assert any(not torch.equal(p, s) for p, s in zip(model.parameters(), start, strict=True))
    if norms == "freeze":
        assert (model(old) - before).abs().max() < 0.05
        assert memory.forgetting().total.relative < 1e-3


def tensors(memory: nscl.Memory) -> list[tuple[str, Tensor]]:
    return list(memory.state_dict()["tensors"].items())


def test_a_model_must_be_a_module() -> None:
    with pytest.raises(TypeError, match=r"needs a torch\.nn\.Module, not list"):
        nscl.Memory.adam_nscl([nn.Linear(2, 2)])  # type: ignore[arg-type]


def test_remembering_without_a_protected_optimizer_is_warned_about() -> None:
    model = nn.Linear(2, 2)
    memory = nscl.Memory.adam_nscl(model)
    with pytest.warns(nscl.NsclWarning, match="no optimizer is protected") as caught:
        memory.remember([torch.randn(3, 2)])
    assert caught[0].filename == __file__
    assert "no optimizer is protected" in memory.report().notes[-1]
    memory.protect(torch.optim.SGD(model.parameters(), 0.1))  # and forgotten at once
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    assert memory.remember([torch.randn(3, 2)]).optimizers == ("SGD over 2 parameters",)


@unprotected
def test_nothing_is_hung_on_the_model() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    modules = [set(vars(m)) for m in model.modules()]
    parameters = [set(vars(p)) for p in model.parameters()]
    before = hooks(model)
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([torch.randn(4, 3)])
    memory.protect(torch.optim.SGD(model.parameters(), 0.1))
    assert [set(vars(m)) for m in model.modules()] == modules
    assert [set(vars(p)) for p in model.parameters()] == parameters
    assert hooks(model) == before


@unprotected
def test_layers_wholly_free_or_wholly_held_are_reported() -> None:
    model = nn.ModuleDict({"silent": nn.Linear(3, 2, bias=False), "busy": nn.Linear(3, 2)})
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10))
    old = torch.zeros(9, 3)
    report = memory.remember([old], forward=lambda m, x: m["silent"](x))
    assert any(note.startswith("100 % free: silent") for note in report.notes)
    report = memory.remember([torch.randn(9, 3)], forward=lambda m, x: m["busy"](x))
    assert any(note.startswith("0 % free: busy") for note in report.notes)


def test_every_public_name_is_there_and_documented() -> None:
    for name in nscl.__all__:
        assert getattr(nscl, name).__doc__, name
    assert set(nscl.__all__) >= {"Memory", "Protection", "Report", "Forgetting", "register_layer"}


@unprotected
def test_all_options_go_together() -> None:
    """Every combination remembers, steps, reports and forgets without a surprise."""
    old, new = torch.randn(6, 4), torch.randn(8, 4)
    for acts_on, norms, statistics, (rule, offload) in itertools.product(
        ("step", "displacement"),
        ("ewc", "freeze", "train"),
        ("update", "freeze"),
        ((nscl.Ratio(10.0), None), (nscl.Ridge(10.0), "disk")),
    ):
        model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
        options: dict[str, Any] = {"acts_on": acts_on, "norms": norms, "statistics": statistics}
        memory = nscl.Memory(model, rule=rule, offload=offload, **options)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        with memory.protect(optimizer):
            memory.remember([old])
            train(model, optimizer, new, torch.arange(8) % 2, 1)
            memory.remember([new])
            train(model, optimizer, old, torch.arange(6) % 2, 1)
            assert 0 <= memory.forgetting().total.relative < 1
            assert str(memory.report())
