"""Sums of outer products, their rounding, and which directions it leaves free."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nscl import Energy, Ratio, Ridge, Tolerance
from nscl.core.covariance import accumulator as module
from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.convolution.unfold import Geometry, Patches, unfold
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.observations import InputRows
from nscl.core.covariance.packed import unpack
from nscl.core.projection.spectrum import decompose

CPU = torch.device("cpu")

EVERY = [Ratio(10.0), Energy(0.05), Tolerance(1e-10), Ridge(10.0)]


def sums_of(
    *chunks: Tensor, constants: int = 0, constant: int | None = None
) -> CovarianceAccumulator:
    groups, _, features = chunks[0].shape
    sums = CovarianceAccumulator(groups=groups, features=features, constants=constants, device=CPU)
    for chunk in chunks:
        assert sums.add(InputRows(chunk), constant)
    return sums


def kept(sums: CovarianceAccumulator) -> Covariance:
    return Covariance(sums.total(), sums.rows, 1, sums.noise)


def free(sums: CovarianceAccumulator, rule: Any) -> tuple[Tensor, Tensor]:
    found = kept(sums)
    dense = found.dense()
    spectrum, _ = decompose(dense, rule, noise=found.rounding(dense, sums.features))
    return spectrum.weights, spectrum.eigenvalues


def test_sums_of_chunks_are_sums_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 3)
    first, second = (torch.randn(2, n, 4, dtype=torch.float64) for n in (7, 5))
    found = kept(sums_of(first, second))
    rows = torch.cat([first, second], 1)
    assert found.rows == 12
    assert torch.allclose(found.dense(), rows.mT @ rows / 12, atol=1e-14)


def test_each_bias_has_a_constant_of_its_own() -> None:
    first, second = (torch.randn(1, n, 2, dtype=torch.float64) for n in (4, 6))
    sums = CovarianceAccumulator(groups=1, features=2, constants=2, device=CPU)
    sums.add(InputRows(first), 0)
    sums.add(InputRows(second), 1)
    zero, one = torch.zeros(1, 6, 1), torch.ones(1, 6, 1)
    rows = torch.cat(
        [torch.cat([first, one[:, :4], zero[:, :4]], 2), torch.cat([second, zero, one], 2)], 1
    ).double()
    assert torch.allclose(unpack(sums.total()), rows.mT @ rows, atol=1e-14)


def test_data_of_many_sizes_are_not_kept_apart_for_ever() -> None:
    geometry = Geometry((3,), (1,), (1,), ((1, 1),))
    sums = CovarianceAccumulator(groups=1, features=6, constants=1, device=CPU)
    matrix = torch.zeros(7, 7, dtype=torch.float64)
    for size in (4, 5, 6, 7, 8, 9, 10, 4, 5):
        images = torch.randn(3, 2, size, dtype=torch.float64)
        assert sums.add(Patches(images, geometry), 0)
        assert len(sums._correlated) <= module.SIZES
        rows = unfold(images, geometry)[0]
        rows = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
        matrix += rows.mT @ rows
    assert torch.allclose(unpack(sums.total())[0], matrix, atol=1e-12)


def test_images_of_many_sizes_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2000)
    geometry = Geometry((3,), (1,), (1,), ((1, 1),))
    sums = CovarianceAccumulator(groups=1, features=48, constants=1, device=CPU)
    matrix, rows = torch.zeros(49, 49, dtype=torch.float64), 0
    for size in (*range(4, 40), *range(4, 40)):
        images = torch.randn(1, 16, size, dtype=torch.float64)
        assert sums.add(Patches(images, geometry), 0)
        assert sum(some.numel() for waiting in sums._waiting.values() for some in waiting) <= 2000
        assert len(sums._correlated) <= module.SIZES
        seen = unfold(images, geometry)[0]
        seen = torch.cat([seen, torch.ones_like(seen[:, :1])], 1)
        matrix, rows = matrix + seen.mT @ seen, rows + len(seen)
    assert sums.noise < 1e-30
    assert sums.rows == rows
    assert torch.allclose(unpack(sums.total())[0], matrix, atol=1e-12)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_what_is_not_finite_is_noticed(bad: float) -> None:
    values = torch.ones(1, 3, 2)
    values[0, 1, 1] = bad
    sums = CovarianceAccumulator(groups=1, features=2, constants=0, device=CPU)
    assert not sums.add(InputRows(values), None)
    images = torch.ones(1, 1, 4, 4)
    images[0, 0, 3, 3] = bad
    sums = CovarianceAccumulator(groups=1, features=9, constants=0, device=CPU)
    assert not sums.add(Patches(images, Geometry((3, 3), (1, 1), (1, 1), ((0, 0),) * 2)), None)


def test_half_precision_is_multiplied_in_float32() -> None:
    rows = 300 * torch.ones(1, 4, 2, dtype=torch.float16)  # whose squares float16 cannot hold
    assert kept(sums_of(rows)).dense()[0, 0, 0] == 90_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("scale", "positive"), [(1e-3, True), (1.0, False), (1e3, True)])
def test_unused_directions_are_wholly_free_despite_rounding(
    dtype: torch.dtype, scale: float, positive: bool
) -> None:
    """Rank r in d dimensions: at least d − r weights are exactly 1, and no used one is noise."""
    d, rank, batches = 96, 12, 4
    family = torch.randn(rank, d, dtype=dtype)
    family = family.abs() if positive else family
    left = torch.rand if positive else torch.randn
    data = [scale * left(1, 1000, rank, dtype=dtype) @ family for _ in range(batches)]
    sums = sums_of(*data)
    for rule in EVERY:
        assert (free(sums, rule)[0] == 1).sum() >= d - rank, rule
    strict, eigenvalues = free(sums, Tolerance(1e-10))
    assert strict.sum() == d - rank
    assert eigenvalues[strict == 0].min() > 1e-5 * eigenvalues.max()


def test_unused_patches_are_wholly_free_in_float32_by_lags() -> None:
    """Five images of few patches in a kernel of many features."""
    geometry = Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    images = torch.rand(2, 16, 4, 4)[torch.arange(128) % 2]  # at most 32 different patches
    sums = CovarianceAccumulator(groups=1, features=144, constants=0, device=CPU)
    for chunk in images.split(32):
        sums.add(Patches(chunk, geometry), None)
    assert len(sums._correlated) == 1
    for rule in EVERY:
        assert (free(sums, rule)[0] == 1).sum() >= 144 - 32, rule
    assert free(sums, Tolerance(1e-10))[0].sum() == 144 - 32


@pytest.mark.parametrize("different", [1, 8])
@pytest.mark.parametrize("batch", [10, 1000])
def test_rows_repeated_for_ever_are_rounded_alike_and_known(different: int, batch: int) -> None:
    """Padding and constant backgrounds: the errors of equal rows add up instead of averaging."""
    rows = torch.rand(1, different, 96)[:, torch.arange(6000) % different]
    sums = sums_of(*rows.split(batch, 1))
    for rule in EVERY:
        assert (free(sums, rule)[0] == 1).sum() >= 96 - different, rule
    assert free(sums, Tolerance(1e-10))[0].sum() == 96 - different


def test_a_constant_background_by_lags() -> None:
    images = torch.rand(1, 32, 1, 1).expand(64, 32, 8, 8).contiguous()
    geometry = Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    sums = CovarianceAccumulator(groups=1, features=288, constants=0, device=CPU)
    for chunk in images.split(16):
        sums.add(Patches(chunk, geometry), None)
    assert len(sums._correlated) == 1
    assert free(sums, Tolerance(1e-10))[0].sum() >= 288 - 9


def test_a_loud_group_does_not_drown_a_quiet_one() -> None:
    """The noise of one channel of a depthwise convolution is not that of another."""
    rows = torch.randn(2, 5000, 4) * torch.tensor([1e4, 1e-4])[:, None, None]
    assert free(sums_of(rows), Tolerance(1e-10))[0].sum() == 0


@pytest.mark.parametrize("kind", ["offset", "scaled", "two"])
@pytest.mark.parametrize("batch", [64, 2000])
def test_a_loud_feature_does_not_drown_quiet_ones(kind: str, batch: int) -> None:
    """A year beside ages, a bias constant beside pixels: float32 frees what float64 does."""
    rows = torch.randn(1, 2000, 20)
    if kind == "offset":
        rows[..., 0] = 2000 + 10 * rows[..., 0]
    rows[..., 0] *= 1000.0 if kind == "scaled" else 1.0
    rows[..., :2] *= 300.0 if kind == "two" else 1.0
    short, exact = (
        sums_of(*rows.to(dtype).split(batch, 1), constants=1, constant=0)
        for dtype in (torch.float32, torch.float64)
    )
    for rule in EVERY:
        assert torch.allclose(free(short, rule)[0], free(exact, rule)[0], atol=1e-3), rule
    assert free(short, Tolerance(1e-10))[0].sum() == free(exact, Tolerance(1e-10))[0].sum()


def test_unused_directions_are_free_beside_loud_features() -> None:
    """Twenty columns, every one twice and of its own loudness: twenty directions are unused."""
    loudness = 2.0 ** torch.randint(-8, 9, (40,))
    rows = torch.rand(1, 3000, 20).repeat(1, 1, 2) * loudness
    sums = sums_of(*rows.split(500, 1))
    for rule in EVERY:
        assert (free(sums, rule)[0] == 1).sum() >= 20, rule
    assert free(sums, Tolerance(1e-14))[0].sum() == 20


def test_the_constant_of_a_bias_does_not_drown_quiet_features() -> None:
    rows = 1e-5 * torch.randn(1, 5000, 4)
    sums = sums_of(rows, constants=1, constant=0)
    assert free(sums, Tolerance(1e-13))[0].sum() == 0


def test_full_rank_float32_data_leave_nothing_to_noise() -> None:
    data = torch.randn(1, 20_000, 32) * torch.logspace(0, -2, 32)
    assert free(sums_of(data), Tolerance(1e-10))[0].sum() == 0


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_called_without_images(stride: int) -> None:
    geometry = Geometry((3, 3), (stride, stride), (1, 1), ((1, 1), (1, 1)))
    sums = CovarianceAccumulator(groups=1, features=9, constants=1, device=CPU)
    assert sums.add(Patches(torch.zeros(0, 1, 8, 8), geometry), 0)
    assert sums.rows == 0
    images = torch.randn(64, 1, 8, 8)
    alone = CovarianceAccumulator(groups=1, features=9, constants=1, device=CPU)
    for some in (sums, alone):
        assert some.add(Patches(images, geometry), 0)
    assert torch.equal(sums.total(), alone.total())
