"""Spectra and projections of sketches against those of the full matrix."""

import pytest
import torch
from torch import Tensor

from nscl.core.covariance.low_rank import Sketch, sketch_of
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.rules import Energy, Ratio, Ridge, Rule, Tolerance
from nscl.core.projection.sketched.sketched_spectrum import decompose_sketch, sketched_projection
from nscl.core.projection.spectrum import decompose

HARD = (Ratio(10.0), Energy(0.05), Tolerance(1e-6))


def of_rank(rank: int, width: int = 12, *, groups: int = 2) -> Tensor:
    torch.manual_seed(rank)
    few = torch.randn(groups, 40, rank, dtype=torch.float64)
    return few @ torch.randn(groups, rank, width, dtype=torch.float64)


def written_out(projection: Projection, width: int) -> Tensor:
    eye = torch.eye(width, dtype=torch.float64).repeat(len(projection.basis), 1, 1)
    projection.apply_(eye)
    return eye


@pytest.mark.parametrize("rule", [*HARD, Ridge(2.0)], ids=repr)
def test_data_of_few_directions_are_treated_as_with_the_full_matrix(rule: Rule) -> None:
    rows = of_rank(4)
    full, vectors = decompose(rows.mT @ rows / 40, rule, tasks=3)
    sketch = sketch_of(rows, 6).divided(40)
    found, U = decompose_sketch(sketch, rule, tasks=3)
    assert U.shape[-1] <= 6
    assert found.features == full.features
    assert found.free == pytest.approx(full.free, rel=1e-9)
    assert found.share == pytest.approx(full.share, abs=1e-9)
    assert found.condition == pytest.approx(full.condition, rel=1e-6)
    truth = (vectors * full.weights[:, None]) @ vectors.mT
    assert torch.allclose(written_out(sketched_projection(U, found.weights), 12), truth, atol=1e-9)


@pytest.mark.parametrize("rule", HARD, ids=repr)
def test_what_was_lost_is_never_free(rule: Rule) -> None:
    rows = of_rank(12) * 0.7 ** torch.arange(12)
    sketch = sketch_of(rows, 5).divided(40)
    spectrum, U = decompose_sketch(sketch, rule)
    assert spectrum.free == spectrum.share == 0.0
    P = written_out(sketched_projection(U, spectrum.weights), 12)
    assert torch.equal(P, torch.zeros_like(P))


def test_groups_share_the_most_careful_weight() -> None:
    rows = torch.cat([of_rank(3, groups=1), of_rank(12, groups=1)])
    alone = [decompose_sketch(sketch_of(group[None], 5), Ridge(1.0))[0].weights for group in rows]
    rest = min(float(weights[0, 0]) for weights in alone)
    spectrum, U = decompose_sketch(sketch_of(rows, 5), Ridge(1.0))
    assert torch.allclose(spectrum.weights, torch.cat(alone).clamp_max(rest))
    P = written_out(sketched_projection(U, spectrum.weights), 12)
    assert torch.allclose(P.diagonal(dim1=-2, dim2=-1).sum(-1), spectrum.weights.sum(-1))
    assert decompose_sketch(sketch_of(rows, 5), Tolerance(1e-6))[0].free == 0.0


def test_ridge_shrinks_what_is_not_known_by_its_mean() -> None:
    rows = of_rank(12, groups=1) * 0.8 ** torch.arange(12)
    sketch = sketch_of(rows, 5).divided(40)
    spectrum, U = decompose_sketch(sketch, Ridge(2.0), tasks=2)
    eye = torch.eye(12, dtype=torch.float64)
    C = sketch.times(eye[None])
    mean = C[0].trace() / 12
    truth = torch.linalg.inv(eye + 2 * C[0] / (2.0 * mean))
    P = written_out(sketched_projection(U, spectrum.weights), 12)[0]
    assert torch.allclose(P, truth, rtol=1e-9, atol=1e-12)


def test_no_data_free_everything() -> None:
    spectrum, U = decompose_sketch(Sketch.empty(1, 5, 2), Ratio(10.0))
    assert U.shape == (1, 5, 0)
    assert spectrum.free == 5.0
    assert torch.equal(written_out(sketched_projection(U, spectrum.weights), 5)[0], torch.eye(5))
