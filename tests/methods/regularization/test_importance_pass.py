"""Which pictures importances are taken from: a capped draw, the same ones every time."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nscl.methods.regularization.importance_pass import PassOptions, pass_batches
from tests.methods.setups import made


def seen(
    tmp_path: Path, *, task: int = 0, seed: int = 0, augment: str = "default", **options: Any
) -> torch.Tensor:
    setup = made("mas", tmp_path, seed=seed, data={"augment": augment})
    split = setup.stream[task].train
    batches = pass_batches(setup.method.lab, split, task, PassOptions(**options))
    return torch.cat([images for images, _ in batches])


def test_no_more_than_asked_for_and_the_same_ones_again(tmp_path: Path) -> None:
    first = seen(tmp_path, samples=5)
    torch.manual_seed(3)  # whatever else was drawn meanwhile
    assert len(first) == 5
    assert torch.equal(first, seen(tmp_path, samples=5))
    assert not torch.equal(first, seen(tmp_path, samples=5, seed=1))


@pytest.mark.parametrize("samples", [None, 1000])
def test_a_task_with_fewer_is_seen_whole_and_mixed(samples: int | None, tmp_path: Path) -> None:
    setup = made("mas", tmp_path)
    split = setup.stream[1].train
    loader = setup.loaders(split, purpose="slow", augment="none", shuffle=False)
    whole = torch.cat([images for images, _ in loader])
    found = seen(tmp_path, task=1, samples=samples)
    assert 200 < len(whole) < 1000
    assert not torch.equal(found, whole)
    assert sorted(found.flatten(1).tolist()) == sorted(whole.flatten(1).tolist())


def test_no_picture_is_left_out_for_batch_norm(tmp_path: Path) -> None:
    """A shuffled loader would drop a last batch of one; here every picture counts."""
    assert len(seen(tmp_path, samples=257)) == 257


def test_pictures_are_augmented_as_in_training_or_plain(tmp_path: Path) -> None:
    plain = seen(tmp_path, samples=9, augment="none")
    assert torch.equal(seen(tmp_path, samples=9, augment="crop-flip", stats_augment=False), plain)
    augmented = seen(tmp_path, samples=9, augment="crop-flip", stats_augment=True)
    assert not torch.equal(augmented, plain)
    assert torch.equal(augmented, seen(tmp_path, samples=9, augment="crop-flip"))


def test_the_pass_draws_nothing_from_the_global_generator(tmp_path: Path) -> None:
    setup = made("mas", tmp_path)
    before = torch.get_rng_state()
    list(pass_batches(setup.method.lab, setup.stream[0].train, 0, PassOptions(samples=9)))
    assert torch.equal(torch.get_rng_state(), before)
