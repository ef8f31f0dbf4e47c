"""Query, key and value are fed the same rows: remembered, decomposed, kept and written once."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import nscl
from nscl.core.projection import projector as projecting

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

QKV = ("query", "key", "value")


class Attention(nn.Module):
    """Three projections of one input, and a gate beside an up-projection."""

    def __init__(self, copies: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(12, n) for n in (12, 6, 6))
        self.gate, self.up = (nn.Linear(6, 9, bias=False) for _ in range(2))
        self.down = nn.Linear(9, 4)
        self.copies = copies

    def forward(self, x: Tensor) -> Tensor:
        def given(tensor: Tensor) -> Tensor:
            return tensor.clone() if self.copies else tensor

        q, k, v = (layer(given(x)) for layer in (self.query, self.key, self.value))
        mixed = torch.softmax(q[..., :6] @ k.mT, -1) @ v
        return self.down(torch.tanh(self.gate(given(mixed))) * self.up(given(mixed))).mean(1)


def batches() -> list[Tensor]:
    return [torch.randn(5, 7, 12, dtype=torch.float64) for _ in range(3)]


def remembered(copies: bool, **options: Any) -> nscl.Memory:
    memory = nscl.Memory(Attention(copies).double(), **options)
    memory.protect(torch.optim.Adam(memory.model.parameters()))
    torch.manual_seed(1)
    for _ in range(2):
        memory.remember(batches())
    return memory


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


OPTIONS: dict[str, dict[str, Any]] = {
    "both factors": {},
    "null space": {"rule": nscl.Energy(0.2)},
    "sketches": {"rank": 5},
    "on disk": {"offload": "disk", "rank": 7},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_sharing_changes_nothing_but_what_it_costs(options: Any, tmp_path: Path) -> None:
    shared, apart = (remembered(copies, **options) for copies in (False, True))
    ours, theirs = shared.state_dict(), apart.state_dict()
    assert ours["metadata"] == theirs["metadata"]
    assert_same(ours["tensors"], theirs["tensors"])
    assert shared.report().layers == apart.report().layers
    kept = shared._state.covariances
    assert kept["query"] is kept["key"] is kept["value"]
    assert kept["gate"] is kept["up"]
    assert kept["gate"] is not kept["query"]
    assert shared.nbytes["projections"] < apart.nbytes["projections"]
    if "offload" not in options:
        assert shared.nbytes["covariances"] < 0.6 * apart.nbytes["covariances"]
    sizes = []
    for memory in (shared, apart):
        path = tmp_path / "memory"
        memory.save(path)
        with safe_open(path, "pt") as file:
            names = list(file.keys())
        sizes.append(sum(name.startswith("covariance/") for name in names))
        again = nscl.Memory.load(path, memory.model)
        assert_same(again.state_dict()["tensors"], theirs["tensors"])
        alike = again._state.covariances["query"] is again._state.covariances["key"]
        assert alike == (memory is shared)
    assert sizes == [3, 6]


def test_a_shared_input_is_decomposed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = []
    real = projecting.decompose

    def counted(*args: Any, **kwargs: Any) -> Any:
        count.append(len(args))
        return real(*args, **kwargs)

    monkeypatch.setattr(projecting, "decompose", counted)
    nscl.Memory(Attention().double()).remember(batches())
    assert len(count) == 3  # of six layers


def test_sharing_goes_through_checkpoints_merging_and_forgetting(tmp_path: Path) -> None:
    memory = remembered(copies=False)
    torch.save(memory.state_dict(), tmp_path / "m.pt")
    other = nscl.Memory(memory.model)
    other.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    other.merge(memory)
    kept = other._state.covariances
    assert kept["query"] is kept["key"] is kept["value"]
    assert kept["query"].rows == 2 * memory._state.covariances["query"].rows
    before = other.nbytes["covariances"]
    other.forget("query")  # the two others still need it
    assert other.nbytes["covariances"] == before
    assert other._state.covariances["key"] is other._state.covariances["value"]


def test_a_task_in_which_they_differ_parts_them() -> None:
    memory = remembered(copies=False)
    model = memory.model

    def cross(model: nn.Module, x: Tensor) -> Tensor:
        model.query(x)
        y = 2 * x
        return model.down(torch.tanh(model.gate(model.key(y) + model.value(y)))).mean(1)

    memory.remember(batches(), forward=cross)
    kept = memory._state.covariances
    assert kept["key"] is kept["value"]
    assert kept["key"] is not kept["query"]
    assert kept["up"] is not kept["gate"]
    assert model is memory.model


def test_masked_copies_of_an_input_are_remembered_apart() -> None:
    apart = remembered(copies=True)
    assert len({id(apart._state.covariances[name]) for name in QKV}) == 3
