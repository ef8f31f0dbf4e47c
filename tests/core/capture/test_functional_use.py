"""No use of a weight outside of its own layer is overlooked."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl
from nscl.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class Functional(nn.Module):
    def __init__(self, use: Callable[["Functional", Tensor], Tensor]) -> None:
        super().__init__()
        self.embed, self.mix, self.use = nn.Embedding(5, 4), nn.Linear(4, 4), use

    def forward(self, ids: Tensor) -> Tensor:
        return self.use(self, self.mix(self.embed(ids)))


USES: dict[str, Callable[[Functional, Tensor], Tensor]] = {
    "linear": lambda m, h: F.linear(h, m.embed.weight),
    "transposed": lambda m, h: h @ m.embed.weight.T,
    "matrix transposed": lambda m, h: h @ m.embed.weight.mT,
    "method": lambda m, h: h @ m.embed.weight.t(),
    "data": lambda m, h: F.linear(h, m.embed.weight.data),
    "detached": lambda m, h: F.linear(h, m.embed.weight.detach()),
    "in a list": lambda m, h: F.linear(h, torch.cat([m.embed.weight, m.embed.weight])),
    "einsum": lambda m, h: torch.einsum("bld,vd->blv", h, m.embed.weight),
    "by keyword": lambda m, h: F.linear(h, weight=m.embed.weight),
    "converted": lambda m, h: F.linear(h, m.embed.weight.to(h.dtype)),
    "converted by type": lambda m, h: F.linear(h, m.embed.weight.type(h.dtype)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_weight_used_outside_of_its_layer_is_an_error(use: Any) -> None:
    model = Functional(use)
    memory = nscl.Memory.adam_nscl(model)
    with pytest.raises(UnsupportedError, match=r"'embed.weight' is used by .* outside of its own"):
        memory.remember([torch.randint(0, 5, (2, 3))])
    assert memory.tasks == 0
    nscl.Memory(model, rule=nscl.Ratio(), exclude=["embed"]).remember([torch.randint(0, 5, (2, 3))])


def test_what_cannot_be_protected_raises_after_the_first_batch() -> None:
    taken = []

    def batches() -> Iterator[Tensor]:
        for number in range(5):
            taken.append(number)
            yield torch.randint(0, 5, (2, 3))

    with pytest.raises(UnsupportedError, match="outside of its own"):
        nscl.Memory.adam_nscl(Functional(USES["linear"])).remember(batches())
    assert taken == [0]


LOOKS: dict[str, Callable[[Functional, Tensor], Tensor]] = {
    "shape": lambda m, h: h * m.embed.weight.shape[0] * m.embed.weight.size(1),
    "dtype": lambda m, h: h.to(m.embed.weight.dtype).to(m.embed.weight.device),
    "to": lambda m, h: h.to(m.embed.weight).type_as(m.embed.weight),
    "new": lambda m, h: h + m.embed.weight.new_zeros(1),
    "grad": lambda m, h: h if m.embed.weight.grad is None else -h,
    "type": lambda m, h: h.type(m.embed.weight.type()),
    "like": lambda m, h: h + torch.full_like(m.embed.weight, 0.1).sum(),
    "noise": lambda m, h: h + torch.rand_like(m.embed.weight)[0] + torch.randn_like(h),
    "result type": lambda m, h: h.to(torch.result_type(h, m.embed.weight)),
    "storage": lambda m, h: h * m.embed.weight.untyped_storage().nbytes(),
    "pinned": lambda m, h: -h if m.embed.weight.is_pinned() or m.embed.weight.is_shared() else h,
    "signed": lambda m, h: h if m.embed.weight.is_signed() else -h,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_looking_at_a_weight_is_not_using_it(look: Any) -> None:
    report = nscl.Memory.adam_nscl(Functional(look)).remember([torch.randint(0, 5, (2, 3))])
    assert report.tasks == 1


class TiedByAView(nn.Module):
    """An autoencoder that decodes by a view of its encoder's weight, made once and for all."""

    def __init__(self, view: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.encode = nn.Linear(8, 6, bias=False)
        self.tied = view(self.encode.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x).relu() @ self.tied.reshape(8, 6).T


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda weight: weight.t(),
    "flat": lambda weight: weight.view(-1),
    "a view of a view": lambda weight: weight.t()[:, :].mT,
    "detached": lambda weight: weight.detach(),
    "data": lambda weight: weight.data.t(),
    "a parameter that no module has": lambda weight: nn.Parameter(weight.data).view(-1),
    "from numpy": lambda weight: torch.from_numpy(weight.detach().numpy()),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_made_before_the_pass_is_a_use_of_its_weight(view: Any) -> None:
    model = TiedByAView(view)
    with pytest.raises(UnsupportedError, match=r"'encode.weight' is used by .* outside of its own"):
        nscl.Memory.adam_nscl(model).remember([torch.randn(3, 8)])


def test_a_list_of_detached_weights_is_one_too() -> None:
    model = TiedByAView(lambda weight: weight.detach().clone())
    nscl.Memory.adam_nscl(model).remember([torch.randn(3, 8)])
    hidden = [model.encode.weight.detach()]
    memory = nscl.Memory.adam_nscl(model)
    with pytest.raises(UnsupportedError, match=r"'encode.weight' is used by .*'linear'"):
        memory.remember(
            [torch.randn(3, 8)], forward=lambda m, x: m(F.linear(x, hidden[0]) @ hidden[0])
        )
    assert memory.tasks == 0


def test_neighbours_in_a_flat_buffer_are_no_aliases() -> None:
    model = TiedByAView(lambda weight: weight.detach().clone())
    flat = torch.randn(48 + 48)
    model.encode.weight.data, model.tied = flat[:48].view(6, 8), flat[48:]
    assert nscl.Memory.adam_nscl(model).remember([torch.randn(3, 8)]).tasks == 1
    model.tied = flat[47:95]
    with pytest.raises(UnsupportedError, match=r"'encode.weight' is used by"):
        nscl.Memory.adam_nscl(model).remember([torch.randn(3, 8)])


class OwnAlias(nn.Module):
    """Multiplies by an alias of its own weight, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4))
        self.fixed = self.weight.detach()

    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(lambda row: self.fixed @ row)(x)


nscl.register_layer(OwnAlias)(lambda module, x: x)


def test_a_layer_may_use_aliases_of_its_own_weight_in_vmap_too() -> None:
    assert nscl.Memory.adam_nscl(nn.Sequential(OwnAlias())).remember([torch.randn(3, 4)]).tasks == 1


class FunctionalNorm(nn.Module):
    """Hands the norm's weights to a function, or runs the norm as a module."""

    def __init__(self, *, as_module: bool = False) -> None:
        super().__init__()
        self.linear, self.norm, self.as_module = nn.Linear(4, 6), nn.LayerNorm(6), as_module

    def forward(self, x: Tensor) -> Tensor:
        if self.as_module:
            return self.norm(self.linear(x))
        return F.layer_norm(self.linear(x), (6,), self.norm.weight, self.norm.bias)


@pytest.mark.parametrize("norms", ["ewc", "freeze"])
def test_a_norm_used_outside_of_its_layer_is_an_error(norms: Any) -> None:
    memory = nscl.Memory(FunctionalNorm(), rule=nscl.Ratio(), norms=norms)
    with pytest.raises(UnsupportedError, match=r"'norm.weight' is used by .*layer_norm"):
        memory.remember([torch.randn(3, 4)])
    assert memory.tasks == 0
    assert nscl.Memory(FunctionalNorm(as_module=True), rule=nscl.Ratio(), norms=norms).remember(
        [torch.randn(3, 4)]
    )
    assert nscl.Memory(FunctionalNorm(), rule=nscl.Ratio(), norms="train").remember(
        [torch.randn(3, 4)]
    )
    assert nscl.Memory(FunctionalNorm(), rule=nscl.Ratio(), norms=norms, exclude="norm").remember(
        [torch.randn(3, 4)]
    )


def test_a_norm_of_ones_own_may_use_its_own_weights() -> None:
    class ChannelsFirst(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return F.layer_norm(x.mT, (4,), self.weight, self.bias).mT

    report = nscl.Memory.adam_nscl(nn.Sequential(ChannelsFirst(4), nn.Linear(5, 2))).remember(
        [torch.randn(2, 4, 5)]
    )
    assert report.layers[-1].protected_by == "ewc"


class Gated(nn.Module):
    """A layer of one's own whose child is used by a function, or called."""

    def __init__(self, *, as_module: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4))
        self.gate, self.as_module = nn.Linear(4, 2), as_module

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x) if self.as_module else F.linear(x, self.gate.weight, self.gate.bias)
        return x @ self.weight.T + gate


nscl.register_layer(Gated, check=False)(lambda module, x: x)


def test_a_registered_layer_does_not_hide_its_children() -> None:
    with pytest.raises(UnsupportedError, match=r"'0.gate.weight' is used by .*'linear'"):
        nscl.Memory.adam_nscl(nn.Sequential(Gated(as_module=False))).remember([torch.randn(3, 4)])
    memory = nscl.Memory.adam_nscl(nn.Sequential(Gated(as_module=True)))
    how = {line.name: line.protected_by for line in memory.remember([torch.randn(3, 4)]).layers}
    assert how == {"0": "null space", "0.gate": "null space"}
