"""One pass leaves nothing behind, and overlooks no use of a weight."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import nscl
from nscl.core.observer import evaluating
from nscl.errors import FeatureError, UnsupportedError
from tests.core.memories import covariance, hooks, remembered, rows_seen, same, second_moment

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(4, 3),
        nn.LayerNorm(3),
    )


class Bomb(nn.Module):
    """Lets some batches pass, then goes off."""

    def __init__(self, after: int, problem: BaseException) -> None:
        super().__init__()
        self.left, self.problem = after, problem

    def forward(self, x: Tensor) -> Tensor:
        if self.left == 0:
            raise self.problem
        self.left -= 1
        return x


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 2, 3, 3)


@pytest.mark.parametrize("where", [0, 3, 7])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("problem", [ValueError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_hooks_modes_and_memory_survive_any_exception(
    where: int, after: int, problem: BaseException
) -> None:
    model = network()
    model.insert(where, Bomb(10**6, problem))
    model[1].register_forward_hook(lambda *_: None)  # the user's own stays
    memory = nscl.Memory(model)
    memory.remember([images()])
    model.train()
    model[2].eval()
    modes = [module.training for module in model.modules()]
    before, known = hooks(model), remembered(memory)
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    model[where].left = after
    expected = FeatureError if isinstance(problem, Exception) else type(problem)
    with pytest.raises(expected):
        memory.remember([images(), images(), images()])
    assert hooks(model) == before
    assert [module.training for module in model.modules()] == modes
    assert same(remembered(memory), known)
    assert memory.tasks == 1
    assert all(torch.equal(b, buffers[name]) for name, b in model.named_buffers())
    assert all(p.grad is None for p in model.parameters())


def test_hooks_survive_problems_of_loaders_losses_and_hooks() -> None:
    model = network()
    memory = nscl.Memory(model)
    before = hooks(model)

    def loader() -> Any:
        yield images()
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        memory.remember(loader())
    with pytest.raises(ZeroDivisionError):
        memory.remember([images()], loss=lambda output, batch: 1 / 0)
    assert hooks(model) == before
    handle = model[5].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(FeatureError, match="ZeroDivisionError"):
        memory.remember([images()])
    handle.remove()
    assert hooks(model) == before
    assert memory.tasks == 0


def test_modes_come_back_one_by_one() -> None:
    model = network().train()
    model[1].eval()
    nscl.Memory(model).remember([images()])
    assert [m.training for m in model] == [True, False, True, True, True, True, True]
    assert model.training


def test_the_pass_runs_in_eval_mode_with_full_precision() -> None:
    model, seen = network().train(), list[Any]()
    model.register_forward_hook(lambda m, *_: seen.append((m.training, m[3].training)))
    linear = nn.Linear(4, 4)
    memory, x = nscl.Memory(nn.Sequential(linear, nn.Linear(4, 2))), torch.randn(64, 4)
    nscl.Memory(model).remember([images()])
    assert seen == [(False, False)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory.remember([x])
        assert torch.is_autocast_enabled("cpu")
    deeper = linear(x).double().detach()
    rows = torch.cat([deeper, torch.ones(64, 1)], 1)[None]
    assert (covariance(memory, "1") - second_moment(rows)).abs().max() < 1e-5


def test_settings_of_torch_come_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with suppress(ValueError), evaluating(nn.Linear(1, 1)):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.mha.get_fastpath_enabled()
            raise ValueError
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.set_float32_matmul_precision("highest")


def test_it_works_without_gradients_and_in_inference_mode() -> None:
    model = network()
    memory, plain = nscl.Memory(model), nscl.Memory(model)
    x = images(5)
    plain.remember([x])
    with torch.inference_mode():
        memory.remember([x.clone()])
    assert same(remembered(memory), remembered(plain))
    with torch.no_grad():
        memory.remember([x])
    plain.remember([x])
    assert same(remembered(memory), remembered(plain))


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
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_weight_used_outside_of_its_layer_is_an_error(use: Any) -> None:
    model = Functional(use)
    memory = nscl.Memory(model)
    with pytest.raises(UnsupportedError, match=r"'embed.weight' is used by .* outside of its own"):
        memory.remember([torch.randint(0, 5, (2, 3))])
    assert memory.tasks == 0
    nscl.Memory(model, exclude=["embed"]).remember([torch.randint(0, 5, (2, 3))])


LOOKS: dict[str, Callable[[Functional, Tensor], Tensor]] = {
    "shape": lambda m, h: h * m.embed.weight.shape[0] * m.embed.weight.size(1),
    "dtype": lambda m, h: h.to(m.embed.weight.dtype).to(m.embed.weight.device),
    "to": lambda m, h: h.to(m.embed.weight).type_as(m.embed.weight),
    "new": lambda m, h: h + m.embed.weight.new_zeros(1),
    "grad": lambda m, h: h if m.embed.weight.grad is None else -h,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_looking_at_a_weight_is_not_using_it(look: Any) -> None:
    report = nscl.Memory(Functional(look)).remember([torch.randint(0, 5, (2, 3))])
    assert report.tasks == 1


def test_a_loss_may_use_the_weights() -> None:
    model = network()

    def loss(output: Tensor, batch: Any) -> Tensor:
        return output.sum() + sum(p.square().sum() for p in model.parameters())

    assert nscl.Memory(model).remember([images()], loss=loss).tasks == 1


def test_a_loss_that_runs_the_model_again_adds_no_rows() -> None:
    model = network()
    memory, x = nscl.Memory(model), images()
    memory.remember([x], loss=lambda output, batch: (output - model(batch + 1)).square().sum())
    assert rows_seen(memory, "5") == 2


def test_what_is_recomputed_in_backward_is_counted_once() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.first(x))
            return checkpoint(self.second, x, use_reentrant=False)

    memory = nscl.Memory(Checkpointed())
    memory.remember([torch.randn(4, 3)])
    assert rows_seen(memory, "second") == 4


def compiled_whole(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


def compiled_part(model: nn.Module) -> nn.Module:
    model[0] = torch.compile(model[0], backend="eager")
    return model


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("how", [compiled_whole, compiled_part, compiled_in_place])
@pytest.mark.parametrize("warm", [False, True])
def test_compiled_models_are_seen_like_any_other(how: Any, warm: bool) -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    torch.manual_seed(1)
    model = how(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double())
    x = torch.randn(5, 3, dtype=torch.float64)
    if warm:
        model(x)
    memory, expected = nscl.Memory(model), nscl.Memory(plain)
    memory.remember([x], forward=lambda _, batch: model(batch))
    expected.remember([x])
    assert same(remembered(memory), remembered(expected), atol=1e-13)
    memory.remember([x])
    assert rows_seen(memory, "0") == 10
    assert torch.allclose(model(x), plain(x))


def test_a_layer_that_never_ran_stays_free() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.one(self.body(x))

    model = Heads()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    memory.remember([torch.randn(9, 3)])
    lines = {line.name: line for line in memory.report().layers}
    assert lines["two"].protected_by == "free until remembered"
    assert lines["two"].free == lines["two"].features == 4
    assert lines["one"].free == 0
    with pytest.raises(FeatureError, match="no protected layer was called"):
        memory.remember([torch.randn(2, 3)], forward=lambda m, x: x)
