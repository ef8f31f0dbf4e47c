"""Images from elsewhere: the same ones for the same place, prepared like a training batch."""

from pathlib import Path

import pytest
import torch

from nscl.data.images.augment import normalise
from nscl.methods import external_images
from nscl.methods.external_images import ExternalImages, PoolOptions, prepared
from nscl.training.config.build import build_config
from tests.methods.setups import made


def test_a_task_has_its_own_pool_whenever_it_is_opened(tmp_path: Path) -> None:
    lab = made("finetune", tmp_path).method.lab
    options = PoolOptions(pool="procedural", pool_size=50)
    first, again = ExternalImages(lab, options), ExternalImages(lab, options)
    one, two = first.of_task(0).images, first.of_task(1).images
    assert torch.equal(again.of_task(1).images, two)  # as after a resume in the second task
    assert not torch.equal(one, two)
    assert first.of_task(1) is first.of_task(1)
    assert again.notes() == {"pool": "procedural+current"}


def test_prepared_as_the_loader_does(tmp_path: Path) -> None:
    setup = made("finetune", tmp_path)
    images = setup.stream[0].train.images[:7]
    plain = normalise(images, setup.stream.mean, setup.stream.std)
    assert torch.equal(prepared(setup.method.lab, images), plain)
    assert prepared(setup.method.lab, images[:0]).shape == (0, 1, 8, 8)


def test_augmentation_is_drawn_from_the_step(tmp_path: Path) -> None:
    lab = made("finetune", tmp_path, data={"augment": "crop-flip"}).method.lab
    images = lab.stream[0].train.images[:7]
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(prepared(lab, images))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_processes_that_prepare_together_augment_as_one_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = made("finetune", tmp_path, data={"augment": "crop-flip"})
    lab, images = setup.method.lab, setup.stream[0].train.images[:8]
    torch.manual_seed(0)
    alone = prepared(lab, images)
    parts, same = [], []
    for rank in range(2):
        monkeypatch.setattr(external_images, "rank_and_world", lambda rank=rank: (rank, 2))
        torch.manual_seed(0)
        parts.append(prepared(lab, images[rank::2]))
        torch.manual_seed(0)
        same.append(prepared(lab, images, shared=True))
    assert torch.equal(torch.stack(parts, 1).flatten(0, 1), alone)
    assert all(torch.equal(each, alone) for each in same)


def test_what_auto_comes_to_stands_in_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the run has its name: on another disk, ``auto`` is another run."""
    monkeypatch.delenv("NSCL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = {"method": "muc-mas", "data_dir": tmp_path}
    alone = build_config("split-digits-5", given)
    assert alone.options["pool"] == "procedural"
    cifar = tmp_path / "cifar-10-batches-py"
    cifar.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"):
        (cifar / name).touch()
    beside = build_config("split-digits-5", given)
    assert beside.options["pool"] == "cifar10"
    assert build_config("split-digits-5", {**given, "options": alone.options}) == alone
    asked = PoolOptions(pool="folder:mine")
    assert asked.settled("split-digits-5", tmp_path) == asked
