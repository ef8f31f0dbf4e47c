import pickle
from pathlib import Path

import pytest
import torch

from nscl.data.errors import CorruptDataError, DataError
from nscl.data.images.files import FileSplit, decode_files, joined
from nscl.data.readers.pictures import decode_picture
from nscl.data.tasks import Split


@pytest.fixture
def split(picture_folder: Path) -> FileSplit:
    files = sorted((picture_folder / "test").rglob("*.png"))
    return FileSplit(files, torch.arange(len(files)) % 4, size=(10, 12))


def test_threads_decode_like_one_after_the_other(split: FileSplit) -> None:
    truth = [torch.tensor(decode_picture(f, name=f, size=(10, 12))) for f in split.files]
    for threads in (0, 1, 3):
        assert decode_files(split.files, (10, 12), threads=threads).equal(torch.stack(truth))


def test_it_is_a_split(split: FileSplit) -> None:
    assert (len(split), split.image_shape, split.bytes) == (12, (3, 10, 12), 12 * 360)
    assert not split.in_memory
    rows = torch.tensor([11, 0])
    images = split.gather(rows)
    assert images.equal(decode_files([split.files[11], split.files[0]], (10, 12)))
    chosen = split.select(rows)
    assert (chosen.files[0], chosen.labels.tolist()) == (split.files[11], [3, 0])
    assert repr(split) == "FileSplit(12 images (3, 10, 12))"
    assert split.to("cpu") is split
    assert pickle.loads(pickle.dumps(split)).files == split.files


def test_what_it_cannot_do_it_says(split: FileSplit) -> None:
    with pytest.raises(DataError, match=r"12 pictures .* not in memory; raise max_bytes"):
        _ = split.images
    with pytest.raises(DataError, match="cannot be moved to meta"):
        split.to("meta")
    with pytest.raises(DataError, match=r"int64 \[12\]"):
        FileSplit(split.files, torch.zeros(3).long(), size=(4, 4))


def test_a_broken_picture_is_named(split: FileSplit) -> None:
    split.files[3].write_bytes(b"no picture")
    with pytest.raises(CorruptDataError, match=split.files[3].name):
        decode_files(split.files, (8, 8))


def test_splits_of_files_are_joined_without_decoding(split: FileSplit) -> None:
    labels = torch.arange(2 * len(split))
    both = joined([split, split], labels)
    assert isinstance(both, FileSplit)
    assert both.labels.equal(labels)
    assert both.gather(labels[len(split) :]).equal(split.gather(labels[: len(split)]))
    loaded = Split(split.gather(labels[: len(split)]), split.labels)
    assert joined([loaded, loaded], labels).images.equal(both.gather(labels))
