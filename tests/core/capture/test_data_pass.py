"""Algorithm 2 as a whole: running covariances, and passes that come to nothing."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nscl
from nscl.errors import FeatureError
from tests.core.memories import covariance, remembered, rows_seen, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


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


@pytest.mark.parametrize(
    "batches",
    [
        lambda x: x,
        lambda x: iter([x]),
        lambda x: {"input": x},
        lambda x: DataLoader(TensorDataset(x, torch.zeros(len(x))), batch_size=4),
    ],
)
def test_batches_come_from_anything_that_can_be_iterated(batches: Any) -> None:
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


@pytest.mark.parametrize(
    ("value", "norms"),
    [(torch.inf, "ewc"), (-torch.inf, "ewc"), (torch.nan, "train"), (1e30, "ewc")],
)
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
