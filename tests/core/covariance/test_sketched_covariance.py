"""A sketch answers like the full covariance that it stands for."""

import pytest
import torch

from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.low_rank import sketch_of
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.errors import ModelMismatchError
from tests.core.covariance.test_low_rank import random_rows


def test_what_is_lost_counts_as_spread_evenly() -> None:
    rows = random_rows(2, 50, 10, decay=0.9, seed=0)
    covariance = SketchedCovariance.of(sketch_of(rows, 4), rows=50)
    truth, dense = rows.mT @ rows / 50, covariance.dense()
    trace = truth.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert torch.allclose(dense.diagonal(dim1=-2, dim2=-1).sum(-1), trace)
    assert float(torch.linalg.eigvalsh(dense).min()) > 0
    matrix = torch.randn(2, 3, 10, dtype=torch.float64)
    assert torch.allclose(covariance.times(matrix), matrix @ dense)
    assert torch.allclose(covariance.diagonal(), dense.diagonal(dim1=-2, dim2=-1))
    part = covariance.mean([1, 4, 7])
    eye = torch.eye(3, dtype=torch.float64).expand(2, -1, -1)
    assert torch.allclose(part.times(eye), dense[:, [1, 4, 7]][:, :, [1, 4, 7]])


def test_two_are_added_as_the_sketch_of_both() -> None:
    rows = random_rows(1, 60, 10, decay=0.7, seed=0)
    one, other = (SketchedCovariance.of(sketch_of(part, 4), 30) for part in rows.split(30, 1))
    both = one.plus(other)
    merged = one.sketch.plus(other.sketch)
    assert (both.rows, both.tasks, both.rank) == (60, 2, 4)
    assert torch.equal(both.sums, merged.rows)
    assert torch.equal(both.bound, merged.bound)
    assert one.plus(other, same_tasks=True).tasks == 1
    assert both.nbytes == both.sums.nbytes + 2 * 8


def test_only_sketches_of_one_rank_add_up() -> None:
    rows = random_rows(1, 30, 10, decay=0.7, seed=0)
    sketched, larger = (SketchedCovariance.of(sketch_of(rows, rank), 30) for rank in (4, 5))
    for other in (larger, Covariance(torch.ones(1, 55), 1, 1)):
        with pytest.raises(ModelMismatchError, match="of the same rank only"):
            sketched.plus(other)
