"""Importances of single samples: what they are taken of, what they touch, what is refused."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nscl.data import open_stream
from nscl.errors import FeatureError, UnsupportedError
from nscl.methods.regularization.fisher import fisher
from nscl.methods.regularization.mas import norm_directions
from nscl.methods.regularization.per_sample_grads import Magnitude, Unit, importances, through
from nscl.models import MLP, MultiHead, build_model
from tests.methods.regularization.importance_worker import everything
from tests.methods.regularization.quadratics import Scale, data, network, pictures
from tests.runs import two_ranks

Batches = list[tuple[Tensor, Tensor]]


def plain(logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """The output itself as score."""
    yield torch.ones_like(logits)


@pytest.mark.parametrize(("unit", "expected"), [("sample", 5), ("batch_scaled", 8), ("batch", 4)])
def test_gradients_1_and_3(unit: Unit, expected: float) -> None:
    """row 7 of the sanity table: the square comes before the mean."""
    model = Scale(0.7)
    options = {"parameters": dict(model.named_parameters()), "directions": plain, "unit": unit}
    found = importances(
        model, data(1.0, 3.0), output=through(model, 0), magnitude="square", **options
    )
    assert found["w"].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("magnitude", ["square", "absolute"])
def test_opposite_gradients_cancel_in_a_batch_only(magnitude: Magnitude) -> None:
    model = Scale(0.7)
    found = {
        unit: importances(
            model,
            data(1.0, -1.0),
            output=through(model, 0),
            parameters=dict(model.named_parameters()),
            directions=plain,
            magnitude=magnitude,
            unit=unit,
        )["w"].item()
        for unit in ("sample", "batch")
    }
    assert found == {"sample": 1.0, "batch": 0.0}


@settings(max_examples=20)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.sampled_from(["square", "absolute"]))
def test_how_samples_are_batched_does_not_matter(sizes: list[int], magnitude: Magnitude) -> None:
    model = MultiHead(MLP(36, width=4), [2, 3]).double()
    (whole,) = pictures(sum(sizes))
    parts = list(zip(*(t.split(sizes) for t in whole), strict=True))
    once, often = (
        importances(
            model,
            batches,
            output=through(model, 1),
            parameters=dict(model.backbone_parameters()),
            directions=norm_directions,
            magnitude=magnitude,
        )
        for batches in ([whole], parts)
    )
    for name in once:
        torch.testing.assert_close(once[name], often[name], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("unit", ["sample", "batch"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_network_is_left_as_it_was(unit: Unit, fails: bool) -> None:
    model = network()
    model.train()
    model.backbone.norms[0].eval()  # type: ignore[index, union-attr]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        yield from ready
        if fails:
            raise OSError("the disk is gone")

    ready = pictures(4)
    rng = torch.get_rng_state()
    shared = dict(model.backbone_parameters())
    for p in shared.values():
        p.requires_grad_(False)  # a frozen backbone has importances too
    try:
        found = fisher(model, batches(), task=1, parameters=shared, estimator="argmax", unit=unit)
        assert not fails
        assert all(value.max() > 0 for value in found.values())
    except OSError:
        assert fails
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), rng)


def test_a_whole_task_is_vectorised() -> None:
    """Calls of the network do not grow with the number of samples."""

    class Counting(MultiHead):
        calls = 0

        def forward(self, x: Tensor, task: int) -> Tensor:
            self.calls += 1
            return super().forward(x, task)

    model = Counting(MLP(64, width=8), [2])
    task = open_stream("split-digits-5")[0].train
    batch = (task.images.float(), task.labels)
    shared = dict(model.backbone_parameters())
    fisher(model, [batch], task=0, parameters=shared, estimator="sketched")
    assert len(task) > 200
    assert model.calls == 2


def test_networks_in_channels_last_are_vectorised_too() -> None:
    """Same figures without torch's warning of a slow fallback, laid out as the weights are."""
    torch.manual_seed(0)
    model = build_model("resnet18", image_shape=(3, 8, 8), classes_per_task=(2,), width=4)
    images, labels = torch.randn(5, 3, 8, 8), torch.zeros(5, dtype=torch.int64)
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model = model.to(memory_format=layout)  # type: ignore[call-overload]
        batch, shared = images.to(memory_format=layout), dict(model.backbone_parameters())
        options = {"task": 0, "parameters": shared, "estimator": "argmax"}
        found.append(fisher(model, [(batch, labels)], **options))
        assert all(found[-1][name].stride() == p.stride() for name, p in shared.items())
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-3, atol=1e-7)


def test_what_cannot_be_is_refused() -> None:
    model = network()
    shared = dict(model.backbone_parameters())

    def find(model: nn.Module, batches: Batches, **options: object) -> None:
        chosen = {"estimator": "argmax", **options}
        fisher(model, batches, task=1, parameters=shared, **chosen)  # type: ignore[arg-type]

    with pytest.raises(UnsupportedError, match="no form for whole batches"):
        find(model, pictures(2), estimator="true", unit="batch")
    with pytest.raises(FeatureError, match="yielded none"):
        find(model, [])
    with pytest.raises(FeatureError, match=r"'backbone.*' is not finite"):
        find(model, [(torch.full((2, 1, 6, 6), math.nan, dtype=torch.float64), torch.zeros(2))])
    model.backbone.norms[1] = nn.BatchNorm2d(6, track_running_stats=False).double()  # type: ignore[index, operator]
    shared = dict(model.backbone_parameters())
    with pytest.raises(UnsupportedError, match=r"'backbone.norms.1' normalises with the batch"):
        find(model, pictures(2))
    find(model, pictures(3), unit="batch")


def test_a_network_that_looks_at_its_data_has_batches_as_a_way_out() -> None:
    class Choosy(Scale):
        def forward(self, x: Tensor, task: int) -> Tensor:
            return super().forward(x, task) * (2.0 if x.sum() > 0 else 1.0)

    model = Choosy(0.5, logistic=True)
    options = {"parameters": dict(model.named_parameters()), "estimator": "argmax"}
    with pytest.raises(UnsupportedError, match=r"of this Choosy: .*--method.unit batch"):
        fisher(model, data(1.0, 2.0), task=0, **options)
    assert fisher(model, data(1.0, 2.0), task=0, unit="batch", **options)["w"] > 0


def test_two_ranks_find_what_one_process_finds(tmp_path: Path) -> None:
    """Real gloo processes; the last batch is a single sample, so one rank has none of it."""
    two_ranks("tests.methods.regularization.importance_worker", tmp_path)
    for rank in ("0", "1"):
        for name, expected in everything(rank=0, ranks=1).items():
            found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)[name]
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)
