"""SGP: what it holds is scaled by importances that add up over tasks, as published."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.model.block import Block
from nscl.core.projection.low_rank_projector import Projection
from nscl.methods.projection.gpm import GPM, GPMOptions
from nscl.methods.projection.sgp import SGP, SGPOptions
from tests.methods.projecting import build, train


def test_sgp_adds_importances_up_to_one_as_published(tmp_path: Path) -> None:
    """Two tasks through the method's own hook, against docs/methods.md, "SGP"."""
    setup = build("sgp", tmp_path, options={"threshold": 0.9, "increment": 0.0})
    method = setup.method
    assert isinstance(method, SGP)
    train(method, 0)
    method.end_task(0)
    first = _bases(method)
    train(method, 1)
    seen = {}

    def project(block: Block, covariance: Covariance, previous: Projection | None) -> Any:
        seen[block.name] = covariance.dense()
        return grown(block, covariance, previous)

    grown = method.memory.projector
    object.__setattr__(method.memory, "projector", project)
    method.end_task(1)
    for name, scaled in _bases(method).items():
        M, expected = _published(first[name][0], seen[name][0], 0.9, 10.0)
        assert torch.allclose(scaled[0] @ scaled[0].mT, M * expected @ M.mT, atol=1e-8)
        assert expected.max() <= 1
    setup.close()


def _bases(method: GPM) -> dict[str, Tensor]:
    kept = method.memory.state_dict()["projections"]
    return {name: projection["basis"].clone() for name, projection in kept.items()}


def _published(old: Tensor, C: Tensor, threshold: float, c: float) -> tuple[Tensor, Tensor]:
    before = old.square().sum(0)
    M = old / before.sqrt()
    values, vectors = torch.linalg.eigh(C)
    R = vectors * values.clamp_min(0).sqrt()  # R Rᵀ = C: as good as any rows
    U, S, _ = torch.linalg.svd(R - M @ M.mT @ R)
    k = 0
    while (M.mT @ R).square().sum() + S[:k].square().sum() < threshold * C.trace():
        k += 1
    Uc, Sc, _ = torch.linalg.svd(M @ M.mT @ R)
    s = torch.cat([((M.mT @ Uc).square() @ Sc.square()).sqrt(), S[:k]])
    importance = (c + 1) * s / (c * s + s.max())
    importance[: len(before)] += before
    return torch.cat([M, U[:, :k]], 1), importance.clamp_max(1.0)


def test_importances_need_a_positive_slope() -> None:
    with pytest.raises(ValueError, match="c"):
        SGPOptions(c=0.0)
    assert SGPOptions().threshold == GPMOptions().threshold
