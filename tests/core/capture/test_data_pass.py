"""Algorithm 2 as a whole: running covariances, and passes that come to nothing."""

import time
from collections import namedtuple
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import nscl
from nscl.errors import FeatureError, ModelMismatchError
from tests.core.memories import covariance, move, remembered, rows_seen, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

Named = namedtuple("Named", "image label")


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 5),
        nn.LayerNorm(5),
        nn.Linear(5, 2),
    )


def images(count: int = 4) -> Tensor:
    return torch.randn(count, 2, 4, 4)


def test_running_covariances_are_those_of_all_data_whatever_the_weights_were() -> None:
    """Three tasks, weights that move in between: rows are what each layer saw at its time."""
    model = network().double()
    memory, seen = nscl.Memory.adam_nscl(model), dict[str, list[Tensor]]()
    for task in range(3):
        x = images(3 + task).double()
        model.eval()
        for name in ("4", "6"):
            rows = model[: int(name)](x).detach()
            seen.setdefault(name, []).append(torch.cat([rows, torch.ones(len(rows), 1)], 1))
        memory.remember(x.split(2))
        move(model)
    assert memory.tasks == 3
    for name, rows in seen.items():
        every = torch.cat(rows)
        assert rows_seen(memory, name) == len(every) == 12
        expected = every.mT @ every / len(every)
        assert (covariance(memory, name) - expected).abs().max() < 1e-12


def test_how_data_are_cut_into_batches_does_not_matter() -> None:
    model, x = network().double(), images(12).double()
    whole, cut = (nscl.Memory(model, rule=nscl.Ratio(), norms="train") for _ in range(2))
    whole.remember([x])
    cut.remember(x.split(5))
    assert same(remembered(whole), remembered(cut), atol=1e-12)


@pytest.mark.parametrize(
    "batches",
    [
        lambda x: x,
        lambda x: [x],
        lambda x: iter([x]),
        lambda x: [(x, torch.zeros(len(x)))],
        lambda x: [[x, "a label"]],
        lambda x: [Named(x, 1)],
        lambda x: {"input": x},
        lambda x: [{"input": x}],
        lambda x: DataLoader(TensorDataset(x, torch.zeros(len(x))), batch_size=4),
    ],
)
def test_batches_of_every_kind(batches: Any) -> None:
    model, x = network(), images()
    memory, plain = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    memory.remember(batches(x))
    plain.remember([x])
    assert same(remembered(memory), remembered(plain))


def test_means_over_batches_as_the_authors_take_them() -> None:
    """A map keeps its positions, so a batch gives as many rows as one image has."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(48, 2)).double()
    memory, batches = nscl.Memory.adam_nscl(model), images(12).double().split(4)
    memory.remember(batches, batch_mean=True)
    patches = torch.cat([F.unfold(b.mean(0, keepdim=True), 3, padding=1)[0].mT for b in batches])
    rows = torch.cat([patches, torch.ones(len(patches), 1)], 1)
    assert rows_seen(memory, "0") == len(rows) == 3 * 16
    assert (covariance(memory, "0") - rows.mT @ rows / len(rows)).abs().max() < 1e-12
    means = torch.stack([model[:2](b).detach().mean(0) for b in batches])
    rows = torch.cat([means, torch.ones(3, 1)], 1)
    assert (covariance(memory, "2") - rows.mT @ rows / 3).abs().max() < 1e-12
    tokens = nscl.Memory.adam_nscl(nn.Embedding(4, 2))
    tokens.remember([torch.tensor([[1, 2], [1, 1]])], batch_mean=True)
    assert rows_seen(tokens, "model") == 4  # a token has no mean


def test_a_batch_may_begin_with_nothing() -> None:
    model, x = network(), images()
    memory, plain = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    batch = {"edges": torch.empty(2, 0), "x": x}
    memory.remember([batch], forward=lambda m, batch: m(batch["x"]))
    plain.remember([x])
    assert same(remembered(memory), remembered(plain))


def test_batches_are_counted_whatever_the_default_type_is() -> None:
    memory = nscl.Memory.adam_nscl(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))
    data = [torch.randn(1, 3)] * 257  # of which bfloat16 makes 256
    torch.set_default_dtype(torch.bfloat16)
    try:
        memory.remember(data)
    finally:
        torch.set_default_dtype(torch.float32)
    assert remembered(memory)["metadata"]["batches"] == {"1.weight": 257, "1.bias": 257}


def test_a_forward_of_ones_own() -> None:
    model, x = network(), images()
    memory, plain = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    memory.remember([{"pixels": 255 * x}], forward=lambda m, batch: m(batch["pixels"] / 255))
    plain.remember([x])
    assert same(remembered(memory), remembered(plain), atol=1e-5)


def test_progress_is_shown_on_stderr_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    memory = nscl.Memory.adam_nscl(network())
    memory.remember(images(6).split(2))
    assert capsys.readouterr() == ("", "")
    memory.remember(images(6).split(2), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.split("\r")[1:] == [f"remembering batch {i} of 3" for i in (1, 2)] + [
        "remembering batch 3 of 3\n"
    ]
    memory.remember(iter(images(2).split(2)), progress=True)
    assert capsys.readouterr().err == "\rremembering batch 1\n"


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1e30])
@pytest.mark.parametrize("norms", ["ewc", "train"])
def test_features_that_are_not_finite_name_the_layer(value: float, norms: Any) -> None:
    model = network()
    memory = nscl.Memory(model, rule=nscl.Ratio(), norms=norms)
    memory.remember([images()])
    known, bad = remembered(memory), images()
    bad[0, 0, 0, 0] = value
    with pytest.raises(FeatureError, match=r"layer '0' received non-finite features.*in batch 1"):
        memory.remember([images(), bad, images()])
    assert same(remembered(memory), known)


def test_the_first_layer_that_is_not_finite_is_named() -> None:
    model = network()
    memory = nscl.Memory.adam_nscl(model)
    with torch.no_grad():
        model[4].weight[0, 0] = torch.inf
    with pytest.raises(FeatureError, match="layer '6' received non-finite"):
        memory.remember([images()])
    assert memory.tasks == 0


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "no batches: an empty loader"),
        (iter(()), "no batches: an empty loader"),
        ([images(), images(0)], r"batch 1 is empty: float32 tensor of shape \(0, 2, 4, 4\)"),
        ([(images(0), images(0))], "batch 0 is empty: tuple"),
        ([torch.randn(2, 3, 4, 4)], r"could not take batch 0 \(float32 tensor of shape \(2, 3"),
        ([{"picture": images()}], r"dict with keys picture.*unexpected keyword"),
        (["text"], r"could not take batch 0 \(str\)"),
    ],
)
def test_bad_batches_are_named_and_lose_nothing(batches: Any, message: str) -> None:
    memory = nscl.Memory.adam_nscl(network())
    memory.remember([images()])
    known = remembered(memory)
    with pytest.raises(FeatureError, match=message):
        memory.remember(batches)
    assert same(remembered(memory), known)


def test_data_that_cannot_be_iterated_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        nscl.Memory.adam_nscl(network()).remember(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda output, batch: output.sum() * torch.nan, "loss of batch 0 is not finite"),
        (lambda output, batch: output.sum(1), r"scalar tensor .* not of shape \(4,\)"),
        (lambda output, batch: output.detach().sum(), "depends on the model's parameters"),
        (lambda output, batch: 1.0, "scalar tensor .* not 1.0"),
    ],
)
def test_bad_losses_are_errors(loss: Any, message: str) -> None:
    memory = nscl.Memory.adam_nscl(network())
    with pytest.raises(FeatureError, match=message):
        memory.remember([images()], loss=loss)
    assert memory.tasks == 0


def test_an_output_without_gradient_is_not_called_a_loss() -> None:
    with pytest.raises(FeatureError, match="output has no gradient"):
        nscl.Memory.adam_nscl(network()).remember(
            [images()], forward=torch.no_grad()(lambda m, x: m(x))
        )


def test_a_covariance_without_room_names_its_layer() -> None:
    """2.6 · 10¹⁴ bytes: more than a process can address."""
    memory = nscl.Memory.adam_nscl(nn.Sequential(nn.Linear(8_000_000, 1, bias=False)))
    with pytest.raises(FeatureError, match=r"'0' has 8000000 input.*476837.2 GiB.*exclude=\['0'\]"):
        memory.remember([torch.randn(1, 8_000_000)])
    assert memory.tasks == 0


def renamed(model: nn.Sequential) -> None:
    model._modules["four"] = model._modules.pop("4")


CHANGES: dict[str, tuple[Any, str]] = {
    "resized": (
        lambda m: m.__setitem__(4, nn.Linear(48, 7)),
        r"'4' was remembered.*5 × 48.*7 × 48",
    ),
    "without bias": (lambda m: m.__setitem__(6, nn.Linear(5, 2, bias=False)), "'6'.*no bias"),
    "another type": (lambda m: m.__setitem__(4, nn.Conv1d(48, 5, 1)), "'4'.*Linear.*Conv1d"),
    "renamed": (renamed, r"'4' \(Linear, 5 × 48.*no such protected layer; it has: 0, 6, four"),
    "removed": (lambda m: m.__delitem__(6), r"'6' \(Linear, 2 × 5 \(rows\)\) was remembered, but"),
    "norm resized": (
        lambda m: m.__setitem__(5, nn.LayerNorm((1, 5))),
        r"'5.bias'.*\(5,\).*\(1, 5\)",
    ),
    "norm removed": (lambda m: m.__setitem__(5, nn.Identity()), r"'5.bias'.*no such tensor"),
    "statistics gone": (
        lambda m: m.__setitem__(1, nn.BatchNorm2d(3, track_running_stats=False)),
        r"'1.running_mean'.*\(3,\).*no such tensor",
    ),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES.keys())
def test_a_model_that_was_changed_is_noticed(change: Any, message: str) -> None:
    model = network()
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([images()])
    known = remembered(memory)
    change(model)
    for act in (
        lambda: memory.remember([images()]),
        memory.forgetting,
        memory.report,
        lambda: memory.protect(torch.optim.SGD(model.parameters(), 0.1)),
    ):
        with pytest.raises(ModelMismatchError, match=message):
            act()
    assert same(remembered(memory), known)


def test_a_new_layer_is_free_and_then_remembered() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([torch.randn(4, 3)])
    model.append(nn.Linear(3, 2))
    assert memory.report().layers[1].protected_by == "free until remembered"
    memory.remember([torch.randn(4, 3)])
    assert [line.protected_by for line in memory.report().layers] == ["null space"] * 2
    assert rows_seen(memory, "0") == 8
    assert rows_seen(memory, "1") == 4


def step_time(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    model.eval()(images(2)).sum().backward()
    times = []
    for _ in range(15):
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return min(times)


def operations(optimizer: torch.optim.Optimizer) -> list[tuple[str, int]]:
    """Every tensor operation of a step, with the numbers it yields."""
    seen: list[tuple[str, int]] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = func(*args, **(kwargs or {}))
            seen.append((str(func), found.numel() if isinstance(found, Tensor) else 0))
            return found

    with Counting():
        optimizer.step()
    return seen


def test_fifty_tasks_cost_no_more_than_one() -> None:
    model = network()
    memory = nscl.Memory(model, rule=nscl.Energy(0.3))
    optimizer = torch.optim.Adam(model.parameters(), 0.0)
    memory.protect(optimizer)
    batches = images(16).split(8)
    memory.remember(batches)
    size, tensors = memory.nbytes, remembered(memory)["tensors"]
    shapes = {name: (t.shape, t.dtype) for name, t in tensors.items()}
    first, counted = step_time(model, optimizer), operations(optimizer)
    for _ in range(49):
        memory.remember(batches)
    assert memory.tasks == 50
    assert memory.nbytes == size
    after = remembered(memory)["tensors"]
    assert {name: (t.shape, t.dtype) for name, t in after.items()} == shapes
    assert step_time(model, optimizer) < 3 * first + 1e-3
    assert operations(optimizer) == counted  # on any machine, however busy
    assert torch.allclose(after["covariance/4"], 50 * tensors["covariance/4"])


def test_unused_directions_stay_free_however_often_the_same_is_remembered() -> None:
    """In float32 the same data are rounded the same way each time: errors do not average out."""
    model = nn.Sequential(nn.Linear(48, 4), nn.Linear(4, 2))
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10))
    batches = (torch.rand(4, 48)[torch.arange(400) % 4]).split(100)
    for _ in range(20):
        free = memory.remember(batches).layers[0].free
        assert free == 49 - 4


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_torchs_default_device_is_not_the_memorys(acts_on: Any) -> None:
    """Meta for another device than the model's: what lands there has no numbers."""
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    optimizer, ids = torch.optim.SGD(model.parameters(), 0.1), torch.tensor([0, 1, 1])
    memory, plain = (
        nscl.Memory(model, rule=nscl.Ratio(), acts_on=acts_on),
        nscl.Memory.adam_nscl(model),
    )
    plain.remember([ids])
    torch.set_default_device("meta")
    try:
        memory.protect(optimizer)
        memory.remember([ids])
        model[2].bias.requires_grad_(False)  # a plan without it has a decomposition of its own
        model(ids).square().sum().backward()
        optimizer.step()
        assert memory.report().total.features == plain.report().total.features
        assert memory.forgetting().total.relative >= 0
    finally:
        torch.set_default_device(None)
    before, after = remembered(plain)["tensors"], remembered(memory)["tensors"]
    assert all(torch.equal(before[name], after[name]) for name in before)
