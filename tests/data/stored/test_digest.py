"""Digests of streams: the same for the same data, another for any label, pixel or name."""

import dataclasses
from pathlib import Path

import pytest
import torch

from nscl.data import open_stream
from nscl.data.images.files import FileSplit
from nscl.data.stored.digest import stream_digest
from nscl.data.tasks import Split, Task, TaskStream
from nscl.data.texts.split import TextSplit


def made(split: Split, *, channels: int = 1) -> TaskStream:
    task = Task(0, "t", split, split, (0, 1), ("a", "b"))
    return TaskStream("mine", (task,), "task", (0.5,) * channels, (0.5,) * channels)


def plain(**changes: torch.Tensor) -> Split:
    images = torch.arange(24, dtype=torch.uint8).view(4, 1, 2, 3)
    given = {"images": images, "labels": torch.tensor([0, 1, 0, 1]), **changes}
    return Split(given["images"], given["labels"])


def test_a_pixel_a_label_and_the_scale_of_pixels_count() -> None:
    before = stream_digest(made(plain()))
    assert before == stream_digest(made(plain()))
    images = plain().images.clone()
    images[3, 0, 1, 2] += 1
    others = [
        made(plain(images=images)),
        made(plain(labels=torch.tensor([0, 1, 1, 0]))),
        dataclasses.replace(made(plain()), mean=(0.4,)),
    ]
    found = [stream_digest(other) for other in others]
    assert len({before, *found}) == 4
    assert all(len(digest) == 16 for digest in found)


def test_the_order_in_memory_does_not_count() -> None:
    images = plain().images.transpose(2, 3).contiguous().transpose(2, 3)
    assert not images.is_contiguous()
    assert stream_digest(made(plain(images=images))) == stream_digest(made(plain()))


@pytest.mark.parametrize("renamed", [False, True])
def test_pictures_in_their_files_count_by_name(picture_folder: Path, renamed: bool) -> None:
    files = sorted((picture_folder / "test").rglob("*.png"))

    def of(files: list[Path]) -> str:
        split = FileSplit(files, torch.arange(len(files)) % 2, size=(4, 4))
        return stream_digest(made(split, channels=3))

    before, moved = of(files), picture_folder.with_name("elsewhere")
    if renamed:
        files[0].rename(files[0].with_name("z.png"))
        files[0] = files[0].with_name("z.png")
    picture_folder.rename(moved)
    after = of([moved / file.relative_to(picture_folder) for file in files])
    assert (after != before) is renamed


def test_streams_of_one_benchmark_differ_by_their_order() -> None:
    found = {
        stream_digest(open_stream("split-digits-5", order="random", seed=s).restrict(1))
        for s in (0, 1)
    }
    assert len(found) == 2


def test_every_token_and_every_mask_counts() -> None:
    ids, mask = torch.tensor([[3, 4], [5, 0]]), torch.tensor([[1, 1], [1, 0]])

    def of(ids: torch.Tensor, mask: torch.Tensor) -> str:
        inputs = {"input_ids": ids, "attention_mask": mask}
        texts = TextSplit(inputs, torch.arange(2), vocabulary=9)
        return stream_digest(made(texts, channels=0))

    other = ids.clone()
    other[1, 0] = 6
    assert len({of(ids, mask), of(other, mask), of(ids, torch.ones_like(mask))}) == 3
