"""Whether a pool and a stream share pictures: by their place, and by what they show."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from nscl.data import open_stream
from nscl.data.tasks import Split, Task, TaskStream
from nscl.data.unlabelled.disjoint import lies_in_stream, same_place, shared_images, thumbnails


def stream_of(images: torch.Tensor) -> TaskStream:
    split = Split(images, torch.arange(len(images)) % 2)
    task = Task(0, "t", split, split, (0, 1), ("a", "b"))
    return TaskStream("mine", (task,), "task", (0.5,) * 3, (0.5,) * 3)


@pytest.fixture
def pictures() -> torch.Tensor:
    """Coarse random pictures in colour, of more contrast than the flattest that are compared."""
    coarse = torch.rand(20, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    fine = F.interpolate(coarse, size=(32, 32), mode="bilinear")
    return (255 * fine).to(torch.uint8)


def test_a_place_inside_another_is_the_same_in_either_direction(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    assert same_place(tmp_path, inside)
    assert same_place(inside, tmp_path / "a" / ".." / "a")
    assert not same_place(tmp_path / "a", tmp_path / "ab")
    spec = f"folder:{tmp_path}"
    assert lies_in_stream(tmp_path / "train" / "cat", spec)
    assert lies_in_stream(tmp_path, spec)
    assert not lies_in_stream(tmp_path / "beside", spec)
    assert not lies_in_stream(tmp_path, "split-digits-5")


def test_pictures_are_known_whatever_their_size_and_colour(pictures: torch.Tensor) -> None:
    stream = stream_of(pictures)
    smaller = F.interpolate(pictures.float(), scale_factor=0.5, mode="area").to(torch.uint8)
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    grey = (pictures.float() * weights).sum(1, keepdim=True).to(torch.uint8)
    for same in (pictures, smaller, grey):
        assert shared_images(same, stream) == 20
    assert shared_images(pictures[:7], stream) == 7
    assert shared_images(255 - pictures, stream) == 0
    assert shared_images(pictures.flip(3), stream) == 0


def test_flat_pictures_are_not_taken_for_each_other(pictures: torch.Tensor) -> None:
    flat = torch.full((4, 3, 32, 32), 128, dtype=torch.uint8)
    stream = stream_of(torch.cat([pictures, flat]))
    assert shared_images(flat, stream) == 0
    assert shared_images(pictures, stream) == 20


def test_a_thumbnail_is_the_mean_of_its_part_of_the_picture() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    found = thumbnails(images).view(8, 8)
    assert found[0, 0] == images[0, 0, :2, :2].float().mean()
    assert found[7, 3] == images[0, 0, 14:, 6:8].float().mean()
    assert thumbnails(open_stream("split-digits-5")[0].test.images).shape[1] == 64
