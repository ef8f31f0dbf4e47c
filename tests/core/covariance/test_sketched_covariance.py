"""A sketch answers like the full covariance that it stands for."""

import torch

from nscl.core.covariance.low_rank import sketch_of
from nscl.core.covariance.sketched_covariance import SketchedCovariance
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
