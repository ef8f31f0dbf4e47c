"""The user's pictures in class folders: in memory if they fit, else read while training."""

from pathlib import Path

import pytest
import torch

from nscl.data.catalogue import open_stream
from nscl.data.errors import CorruptDataError, DataError
from nscl.data.images.files import FileSplit
from nscl.data.images.folders import folder_selector

BYTES = 36 * 3 * 32 * 32  # of all pictures, decoded


def test_a_group_of_classes_is_labelled_by_its_place_in_the_group(picture_folder: Path) -> None:
    select, names = folder_selector(picture_folder, size=9)
    assert names == ("ant", "bee", "cat", "dog")
    train, test = select((3, 1))
    assert train.labels.tolist() == [1] * 6 + [0] * 6  # files are in the order of the classes
    assert test.labels.tolist() == [1] * 3 + [0] * 3
    assert train.image_shape == test.image_shape == (3, 9, 9)


def test_a_stream_of_pictures_measures_its_own_mean(picture_folder: Path) -> None:
    stream = open_stream(f"folder:{picture_folder}", tasks=2)
    assert stream.name == f"folder:{picture_folder}"
    assert (stream.image_shape, stream.augment) == ((3, 32, 32), "none")
    assert [task.class_names for task in stream] == [("ant", "bee"), ("cat", "dog")]
    assert [len(task.train) for task in stream] == [12, 12]
    pixels = stream[0].train.images.double() / 255
    assert stream.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())


def test_a_folder_needs_a_number_of_tasks(picture_folder: Path) -> None:
    with pytest.raises(DataError, match=r"number of tasks of .* \(--tasks\): 1, 2, 4$"):
        open_stream(f"folder:{picture_folder}")


def test_pictures_beyond_max_bytes_stay_in_their_files(picture_folder: Path) -> None:
    name, notices = f"folder:{picture_folder}", list[str]()
    whole = open_stream(name, tasks=2, order="random", seed=1, max_bytes=BYTES)
    lazy = open_stream(
        name, tasks=2, order="random", seed=1, max_bytes=BYTES - 1, notify=notices.append
    )
    assert "more than max_bytes=110,591" in notices[0]
    assert (lazy.mean, lazy.std) == (whole.mean, whole.std)
    for one, other in zip(whole, lazy, strict=True):
        assert isinstance(other.train, FileSplit)
        assert one.train.in_memory
        assert one.train.labels.equal(other.train.labels)
        assert one.train.images.equal(other.train.gather(torch.arange(len(other.train))))


def test_a_broken_picture_is_named(picture_folder: Path) -> None:
    (picture_folder / "train" / "bee" / "3.png").write_bytes(b"\x89PNG but not really")
    select, _ = folder_selector(picture_folder)
    with pytest.raises(CorruptDataError, match=r"bee/3\.png cannot be decoded"):
        select((0, 1))
