"""GPM and SGP at work on the digits."""

from pathlib import Path

import pytest
import torch

from nscl.methods.base import Options
from nscl.methods.projection.gpm import GPM, GPMOptions
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


@pytest.mark.slow  # three seeds; one: test_quick_digits
@pytest.mark.parametrize("name", ["gpm", "sgp"])
def test_forgets_less_than_fine_tuning(name: str) -> None:
    assert bwt(name) > bwt("finetune") + 1


def test_options_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="threshold"):
        GPMOptions(threshold=1.0)
    assert issubclass(GPMOptions, Options)
