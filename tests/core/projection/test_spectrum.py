"""From covariances to free directions, with the numbers of the paper's method by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from nscl import Energy, Ratio, Ridge, Tolerance
from nscl.core.projection import spectrum as module
from nscl.core.projection.low_rank_projector import thin_projection
from nscl.core.projection.spectrum import decompose

EVERY = [Ratio(10.0), Energy(0.05), Tolerance(1e-10), Ridge(10.0)]


def diagonal(*values: float) -> Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))[None]


def projected(covariance: Tensor, rule: Any, update: Tensor, *, frobenius: bool = False) -> Tensor:
    found, vectors = decompose(covariance, rule)
    moved = update.clone().reshape(1, 1, -1)
    thin_projection(vectors, found.weights, frobenius=frobenius).apply_(moved)
    return moved.flatten()


def low_rank(rank: int = 20, d: int = 50, rows: int = 200) -> Tensor:
    left = torch.randn(rows, rank, dtype=torch.float64)
    return left @ torch.randn(rank, d, dtype=torch.float64)


def test_row_1_of_the_sanity_table() -> None:
    covariance, ones = diagonal(4, 1, 0.01), torch.ones(3, dtype=torch.float64)
    assert torch.allclose(projected(covariance, Ratio(10.0), ones), diagonal(0, 0, 1)[0][2])
    found, _ = decompose(covariance, Ratio(10.0))
    assert found.share == pytest.approx(0.001996, abs=5e-7)
    assert found.free == 1
    assert found.condition == pytest.approx(400)


def test_row_2_of_the_sanity_table() -> None:
    covariance, ones = diagonal(4, 1, 0.01), torch.ones(3, dtype=torch.float64)
    half = math.sqrt(0.5)
    expected = torch.tensor([0, half, half], dtype=torch.float64)
    assert torch.allclose(projected(covariance, Ratio(200.0), ones, frobenius=True), expected)
    expected = torch.tensor([0.0, 1, 1], dtype=torch.float64)
    assert torch.allclose(projected(covariance, Ratio(200.0), ones), expected)
    assert decompose(covariance, Ratio(200.0))[0].share == pytest.approx(0.201597, abs=5e-7)


@pytest.mark.parametrize("rule", EVERY)
def test_row_3_of_the_sanity_table(rule: Any) -> None:
    X = low_rank()
    found, vectors = decompose((X.mT @ X / len(X))[None], rule)
    free = found.weights == 1
    assert free.sum() >= 30
    unused = vectors[0][:, found.eigenvalues[0] <= found.floor[0]]
    assert unused.shape[1] == 30
    assert (X @ unused).abs().max() < 1e-10
    assert (X @ (unused @ unused.mT @ torch.randn(50, 4, dtype=torch.float64))).abs().max() < 1e-10


def test_the_literal_rule_shows_the_float32_artefact_and_the_default_does_not() -> None:
    X = low_rank(rank=60, d=300, rows=60)
    covariance = (X.mT @ X / len(X))[None]
    # How far apart the noise's own singular values lie depends on the processor: a small factor.
    assert decompose(covariance, Ratio(3.0, literal=True))[0].free < 120
    assert decompose(covariance, Ratio(3.0))[0].free >= 240


def test_a_dead_channel_is_free_and_freezes_nothing() -> None:
    """The paper's rule taken literally keeps the dead channel only."""
    living = low_rank(6, 6)
    dead = torch.cat([living, torch.zeros(len(living), 1, dtype=torch.float64)], 1)
    with_dead = (dead.mT @ dead / len(dead))[None]
    assert decompose(with_dead, Ratio(1e9, literal=True))[0].free == 1
    for rule in (Ratio(10.0), Energy(0.05), Tolerance(1e-10)):
        with_, vectors = decompose(with_dead, rule)
        without, fewer = decompose((living.mT @ living / len(living))[None], rule)
        assert with_.free == without.free + 1
        dense = (vectors * with_.weights[:, None]) @ vectors.mT
        expected = (fewer * without.weights[:, None]) @ fewer.mT
        assert torch.allclose(dense[:, :6, :6], expected, atol=1e-10)
        assert dense[0, 6, 6] == pytest.approx(1.0)
    assert decompose(with_dead, Ridge(1.0))[0].weights[0, 0] == 1.0


def test_rounding_that_was_accounted_for_is_noise() -> None:
    found, _ = decompose(diagonal(1.0, 1e-7, 0.5), Tolerance(1e-12), noise=1e-7)
    assert found.weights.tolist() == [[1, 0, 0]]
    quiet = torch.tensor([[1e-6, 1e-12, 1e-6]], dtype=torch.float64)  # exact, though small
    found, _ = decompose(diagonal(1.0, 1e-7, 0.5), Tolerance(1e-12), noise=quiet)
    assert found.free == 0
    assert found.floor[0].argsort().tolist()[0] == 0
    found, _ = decompose(diagonal(1.0, 1e-7, 0.5), Tolerance(1e-12))
    assert found.free == 0
    assert found.condition == pytest.approx(1e7)


def test_negative_rounding_is_clamped() -> None:
    found, _ = decompose(diagonal(1.0, -1e-17, 0.5), Ratio(1.5))
    assert found.eigenvalues.min() == 0
    assert found.free == 2  # the noise, and 0.5 as the smallest that is not


def test_nothing_seen_is_all_free_and_well_conditioned() -> None:
    found, _ = decompose(torch.zeros(1, 3, 3, dtype=torch.float64), Ratio(10.0))
    assert (found.free, found.share, found.condition, found.features) == (3, 0.0, 1.0, 3)


def test_groups_are_decomposed_one_by_one() -> None:
    first, second = diagonal(4, 1, 0.01), diagonal(3, 3, 3)
    both, vectors = decompose(torch.cat([first, second]), Ratio(10.0))
    assert both.weights.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert both.features == 6
    assert both.condition == pytest.approx(400)
    for i, one in enumerate((first, second)):
        rebuilt = vectors[i] @ torch.diag(both.eigenvalues[i]) @ vectors[i].mT
        assert torch.allclose(rebuilt, one[0], atol=1e-14)


def test_an_eigensolver_that_does_not_converge_gets_a_second_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, calls = torch.linalg.eigh, list[Tensor]()

    def fails_once(matrix: Tensor, UPLO: str) -> Any:
        calls.append(matrix)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("did not converge")
        return real(matrix, UPLO=UPLO)

    monkeypatch.setattr(module.torch.linalg, "eigh", fails_once)
    found, _ = decompose(diagonal(4, 1, 0.01), Ratio(10.0))
    assert len(calls) == 2
    assert found.free == 1
    assert torch.allclose(calls[1], calls[0], rtol=0, atol=1e-14)
