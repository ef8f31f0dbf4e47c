"""Embeddings with a lookup of their own: which rows, and by what factor."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.errors import FeatureError
from tests.core.memories import move

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

IDS = torch.tensor([[1, 4, 4], [2, 1, 1]])


class Scaled(nn.Embedding):
    def forward(self, ids: Tensor) -> Tensor:
        return 3.0 * super().forward(ids)


class Shifted(nn.Embedding):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids + 2)


class Sliced(nn.Embedding):
    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[1 : 1 + ids.shape[1]]


class Weighed(nn.Embedding):
    """Every position has a factor of its own, one of them is zero."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * torch.arange(ids.shape[1])[:, None]


KINDS: dict[str, tuple[Callable[..., nn.Embedding], set[int]]] = {
    "scaled": (Scaled, {1, 2, 4}),
    "shifted": (Shifted, {3, 4, 6}),
    "sliced": (Sliced, {1, 2, 3}),
    "weighed": (Weighed, {1, 4}),
}


@pytest.mark.parametrize(("kind", "seen"), KINDS.values(), ids=KINDS.keys())
def test_rows_that_were_taken_are_held_and_no_others(
    kind: Callable[..., nn.Embedding], seen: set[int]
) -> None:
    model = kind(8, 3).double()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    assert memory.remember([IDS]).layers[0].free == 8 - len(seen)
    before = model.weight.detach().clone()
    model.weight.square().sum().backward()
    optimizer.step()
    held = {i for i in range(8) if torch.equal(model.weight[i], before[i])}
    assert held == seen


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS.values()])
def test_forgetting_is_the_movement_of_what_they_give(kind: Callable[..., nn.Embedding]) -> None:
    model = kind(8, 3).double()
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([IDS])
    before = model(IDS).detach().clone()  # a slice would move with the table
    move(model)
    truth = float((model(IDS).detach() - before).square().sum(-1).mean())
    assert memory.forgetting().total.drift == pytest.approx(truth, rel=1e-12)


def test_a_layer_that_is_no_lookup_is_an_error() -> None:
    class Curved(nn.Embedding):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids).tanh()

    with pytest.raises(FeatureError, match=r"'0' \(Curved\) does not compute"):
        nscl.Memory.adam_nscl(nn.Sequential(Curved(8, 3))).remember([IDS])
