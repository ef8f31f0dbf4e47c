"""GPM and SGP at work on the digits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.model.block import Block
from nscl.core.projection.low_rank_projector import Projection
from nscl.methods.base import Options
from nscl.methods.projection.gpm import GPM, GPMOptions
from nscl.methods.projection.sgp import SGP
from tests.methods.projecting import CONVNET, DOMAIN, build, bwt, metrics, shift, train


def test_the_threshold_rises_with_the_task_but_stays_below_one() -> None:
    options = GPMOptions()
    assert [options.threshold_of(t) for t in (0, 1, 9)] == pytest.approx([0.97, 0.973, 0.997])
    assert 0.99 < options.threshold_of(20) < 1


def test_every_task_is_explained_to_its_own_threshold(tmp_path: Path) -> None:
    """What a basis leaves of a task's own images; an increment that is ignored leaves more."""
    options = {"threshold": 0.5, "increment": 0.2}
    setup = build("gpm", tmp_path, options=options, data={"first": 4})
    method = setup.method
    assert isinstance(method, GPM)
    for task, most in ((0, 0.5), (1, 0.3), (2, 0.1)):
        setup.loaders.task = task
        train(method, task, steps=5)
        method.end_task(task)
        for name, spectrum in method.memory._state.spectra.items():
            left = spectrum.weights * spectrum.eigenvalues
            assert left.sum() <= (most + 1e-6) * spectrum.eigenvalues.sum(), (name, task)
    setup.close()


@pytest.mark.parametrize("name", ["gpm", "sgp"])
def test_bases_grow_and_less_is_free(name: str, tmp_path: Path) -> None:
    first, *_, last = [m for m in metrics(name, tmp_path) if m]
    assert 0 < first["columns"] < last["columns"]
    assert 1 > first["free"] > last["free"] > 0
    assert last["share"] < 0.03 if name == "gpm" else last["share"] < 0.1
    assert last["drift"] < 1e-10 if name == "gpm" else 1e-6 < last["drift"] < 0.1


@pytest.mark.parametrize("name", ["gpm", "sgp"])
@pytest.mark.parametrize("given", [CONVNET, DOMAIN])
def test_convolutions_and_one_head_for_all(
    name: str, given: dict[str, object], tmp_path: Path
) -> None:
    last = metrics(name, tmp_path, **given)[-1]
    assert last["columns"] > 0
    assert 0 < last["free"] < 1


def test_old_features_stay_where_the_basis_explains_them(tmp_path: Path) -> None:
    held = {"threshold": 0.9999, "samples": None}
    free = shift("finetune", tmp_path)
    assert free > 0.1
    assert shift("gpm", tmp_path, options=held) < free / 10
    assert shift("gpm", tmp_path, options={"threshold": 0.9, "samples": 20}) < free / 1.5


@pytest.mark.parametrize("norms", ["freeze", "ewc", "train"])
def test_norm_layers_after_the_first_task(norms: str, tmp_path: Path) -> None:
    setup = build("gpm", tmp_path, options={"norms": norms}, **CONVNET)
    method = setup.method
    train(method, 0, steps=5)
    method.end_task(0)
    before = [p.detach().clone() for _, p in method.model.norm_parameters()]
    train(method, 1, steps=5)
    after = [p for _, p in method.model.norm_parameters()]
    stayed = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert stayed == (norms == "freeze")
    setup.close()


def test_only_so_many_images_are_looked_at(tmp_path: Path) -> None:
    setup = build("gpm", tmp_path, options={"samples": 7})
    assert isinstance(setup.method, GPM)
    assert sum(len(labels) for _, labels in setup.method._samples(0)) == 7
    setup.close()


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


@pytest.mark.slow  # three seeds; one: test_quick_digits
@pytest.mark.parametrize("name", ["gpm", "sgp"])
def test_forgets_less_than_fine_tuning(name: str) -> None:
    assert bwt(name) > bwt("finetune") + 1


def test_options_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="threshold"):
        GPMOptions(threshold=1.0)
    assert issubclass(GPMOptions, Options)
