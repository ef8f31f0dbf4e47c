"""One pass leaves nothing behind, and counts what ran, once."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import nscl
from nscl.core.capture.forward_hooks import evaluating
from nscl.errors import FeatureError
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
@pytest.mark.parametrize(("after", "problem"), [(0, ValueError("no")), (1, KeyboardInterrupt())])
def test_hooks_modes_and_memory_survive_any_exception(
    where: int, after: int, problem: BaseException
) -> None:
    model = network()
    model.insert(where, Bomb(10**6, problem))
    model[1].register_forward_hook(lambda *_: None)  # the user's own stays
    memory = nscl.Memory.adam_nscl(model)
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
    memory = nscl.Memory.adam_nscl(model)
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
    nscl.Memory.adam_nscl(model).remember([images()])
    assert [m.training for m in model] == [True, False, True, True, True, True, True]
    assert model.training


class Merging(nn.Module):
    """A low-rank addition that eval mode writes into the frozen weight, as LoRA's own code does."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.merged = nn.Linear(4, 4).requires_grad_(False), False
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)

    def train(self, mode: bool = True) -> "Merging":
        if self.merged is mode:
            sign = -1 if mode else 1
            self.base.weight.data += sign * self.up.weight.data @ self.down.weight.data
        self.merged = not mode
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) if self.merged else self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("whole", [True, False])
def test_what_eval_mode_does_to_weights_is_undone(whole: bool) -> None:
    model = nn.Sequential(Merging(), nn.Linear(4, 2)).double()
    if not whole:
        model.eval()
        model[0].train()
    x, base = torch.randn(5, 4).double(), model[0].base.weight.clone()
    before = model(x)
    nscl.Memory.adam_nscl(model).remember([x])
    assert model[0].training
    assert not model[0].merged
    assert model.training is whole
    assert torch.allclose(model[0].base.weight, base, rtol=1e-12)
    assert torch.allclose(model(x), before, rtol=1e-12)


def test_the_pass_runs_in_eval_mode_with_full_precision() -> None:
    model, seen = network().train(), list[Any]()
    model.register_forward_hook(lambda m, *_: seen.append((m.training, m[3].training)))
    linear = nn.Linear(4, 4)
    memory, x = nscl.Memory.adam_nscl(nn.Sequential(linear, nn.Linear(4, 2))), torch.randn(64, 4)
    nscl.Memory.adam_nscl(model).remember([images()])
    assert seen == [(False, False)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory.remember([x])
        assert torch.is_autocast_enabled("cpu")
    deeper = linear(x).double().detach()
    rows = torch.cat([deeper, torch.ones(64, 1)], 1)[None]
    assert (covariance(memory, "1") - second_moment(rows)).abs().max() < 1e-5


class Cast(nn.Module):
    """Opens autocast in its own forward, as models that always train so do."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.first = dtype, nn.Linear(6, 8)
        self.maps, self.attention = nn.Conv1d(2, 2, 3), nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            self.maps(x.view(-1, 2, 3))
            x = self.first(x)[None]  # many sequences of a single token
            return self.attention(x, x, x)[0].float()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_exact_in_a_model_that_opens_autocast(dtype: torch.dtype) -> None:
    model = Cast(dtype)
    memory, x = nscl.Memory.adam_nscl(model), 3 * torch.randn(9000, 6)  # more than float16 can sum
    memory.remember([x])
    seen = {"first": x, "attention.query": torch.empty(0)}
    with torch.autocast("cpu", dtype=dtype):
        seen["attention.query"] = model.first(x).detach()
    for name, values in seen.items():
        rows = torch.cat([values, torch.ones(len(x), 1)], 1).double()[None]
        expected = second_moment(rows)
        assert (covariance(memory, name) - expected).abs().max() < 1e-5 * expected.abs().max()


def test_images_that_wait_are_exact_in_autocast_too() -> None:
    memory, x = nscl.Memory.adam_nscl(nn.Sequential(nn.Conv1d(8, 2, 3))), torch.randn(1, 8, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory.remember([x])
    expected = second_moment(x.double().unfold(2, 3, 1).transpose(1, 2).reshape(1, -1, 24))
    assert (covariance(memory, "0")[:, :24, :24] - expected).abs().max() < 1e-5


def test_settings_of_torch_come_back() -> None:
    with suppress(ValueError), evaluating(nn.Linear(1, 1)):
        assert not torch.backends.mha.get_fastpath_enabled()
        raise ValueError
    assert torch.backends.mha.get_fastpath_enabled()


def test_no_choice_of_precision_is_in_the_way_of_a_pass() -> None:
    torch.backends.fp32_precision = "tf32"
    memory, seen = nscl.Memory.adam_nscl(model := nn.Sequential(nn.Linear(4, 2))), list[str]()
    matmul = torch.backends.mkldnn.matmul
    model.register_forward_hook(lambda *_: seen.append(matmul.fp32_precision))
    try:
        memory.remember([torch.randn(8, 4)])
        assert seen == ["ieee"]
        assert matmul.fp32_precision == "tf32"
    finally:
        torch.backends.fp32_precision = "none"


def test_it_works_without_gradients_and_in_inference_mode() -> None:
    model = network()
    memory, plain = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    x = images(5)
    plain.remember([x])
    with torch.inference_mode():
        memory.remember([x.clone()])
    assert same(remembered(memory), remembered(plain))
    with torch.no_grad():
        memory.remember([x])
    plain.remember([x])
    assert same(remembered(memory), remembered(plain))


def test_a_compiled_attention_is_read_like_any_other() -> None:
    attention, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)
    plain, memory = nscl.Memory.adam_nscl(attention), nscl.Memory.adam_nscl(attention)
    plain.remember([x], forward=lambda m, x: m(x, x, x))
    attention.compile(backend="eager")
    memory.remember([x], forward=lambda m, x: m(x, x, x))
    assert same(remembered(memory), remembered(plain))


INPUTS: dict[str, tuple[Callable[[], Tensor], str]] = {
    "jagged": (lambda: parts(torch.jagged), "nested float32 tensor of 2 parts"),
    "nested": (lambda: parts(torch.strided), "nested float32 tensor of 2 parts"),
    "sparse": (lambda: torch.randn(3, 4).to_sparse(), r"sparse_coo float32 tensor of shape \(3, 4"),
}


def parts(layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=layout)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_that_are_not_dense_are_named(kind: str) -> None:
    make, described = INPUTS[kind]
    memory = nscl.Memory.adam_nscl(nn.Sequential(nn.Linear(4, 2)))
    with pytest.raises(FeatureError, match=f"layer '0' was given a {described}.*exclude=") as error:
        memory.remember([make()])
    assert "forward=lambda" not in str(error.value)


def test_rows_that_cannot_be_read_are_not_the_models_fault() -> None:
    class Own(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    nscl.register_layer(Own)(lambda module, x: 1 / 0)
    with pytest.raises(FeatureError, match=r"rows of layer '0' \(Own\).*ZeroDivisionError"):
        nscl.Memory.adam_nscl(nn.Sequential(Own(4, 2))).remember([torch.randn(3, 4)])


def test_a_loss_may_use_the_weights() -> None:
    model = network()

    def loss(output: Tensor, batch: Any) -> Tensor:
        return output.sum() + sum(p.square().sum() for p in model.parameters())

    assert nscl.Memory.adam_nscl(model).remember([images()], loss=loss).tasks == 1


def test_a_loss_that_runs_the_model_again_adds_no_rows() -> None:
    model = network()
    memory, x = nscl.Memory.adam_nscl(model), images()
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

    memory = nscl.Memory.adam_nscl(Checkpointed())
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


@pytest.mark.parametrize(
    ("how", "warm"),
    [
        (compiled_whole, False),
        *((how, True) for how in (compiled_whole, compiled_part, compiled_in_place)),
    ],
)
def test_compiled_models_are_seen_like_any_other(how: Any, warm: bool) -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    torch.manual_seed(1)
    model = how(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double())
    x = torch.randn(5, 3, dtype=torch.float64)
    if warm:
        model(x)
    memory, expected = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(plain)
    memory.remember([x], forward=lambda _, batch: model(batch))
    expected.remember([x])
    assert same(remembered(memory), remembered(expected), atol=1e-13)
    memory.remember([x])
    assert rows_seen(memory, "0") == 10
    assert torch.allclose(model(x), plain(x))
