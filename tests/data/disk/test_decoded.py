import os
from pathlib import Path

import numpy as np

from nscl.data.disk.decoded import read_decoded
from nscl.data.readers.raw import RawDataset


def dataset(value: int) -> RawDataset:
    images = np.full((3, 3, 4, 4), value, dtype=np.uint8)
    labels = np.arange(3)
    return RawDataset(images, labels, images[:2], labels[:2], ("ä", "b", "c"), "a part")


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, source: Path) -> RawDataset:
        self.calls += 1
        return dataset(self.calls)


def read(source: Path, reader: Counting) -> tuple[int, list[str]]:
    notices: list[str] = []
    raw = read_decoded(source, reader, notify=notices.append)
    assert raw.class_names == ("ä", "b", "c")
    assert raw.note == "a part"
    assert raw.train_labels.tolist() == [0, 1, 2]
    assert raw.test_images.shape == (2, 3, 4, 4)
    return int(raw.train_images[0, 0, 0, 0]), notices


def test_decoding_is_paid_once_until_the_source_changes(
    tmp_path: Path, private_cache: Path
) -> None:
    source, reader = tmp_path / "set.zip", Counting()
    source.write_bytes(b"one")
    value, notices = read(source, reader)
    assert value == 1
    assert len(notices) == 1
    assert "set.zip" in notices[0]
    assert read(source, reader) == (1, [])
    source.write_bytes(b"other")
    assert read(source, reader)[0] == 2
    os.utime(source, ns=(5, 5))
    assert read(source, reader)[0] == 3
    assert len(list((private_cache / "decoded").iterdir())) == 1


def test_a_folder_is_known_by_its_files(tmp_path: Path) -> None:
    source, reader = tmp_path / "tree", Counting()
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_bytes(b"1")
    assert read(source, reader)[0] == 1
    assert read(source, reader) == (1, [])
    (source / "deep" / "b").write_bytes(b"1")
    assert read(source, reader)[0] == 2


def test_a_damaged_cache_is_made_again(tmp_path: Path, private_cache: Path) -> None:
    source, reader = tmp_path / "set.tar.xz", Counting()
    source.write_bytes(b"one")
    read(source, reader)
    (cached,) = (private_cache / "decoded").iterdir()
    for damaged in (cached.read_bytes()[:-100], b"", b"not a zip"):
        cached.write_bytes(damaged)
        calls = reader.calls
        assert read(source, reader)[0] == calls + 1
        assert read(source, reader) == (calls + 1, [])


def test_without_a_writable_cache_it_goes_on_and_says_so(
    tmp_path: Path, private_cache: Path
) -> None:
    private_cache.write_text("a file where the folder should be")
    source, reader = tmp_path / "set.zip", Counting()
    source.write_bytes(b"one")
    value, notices = read(source, reader)
    assert value == 1
    assert "could not be stored" in notices[1]
