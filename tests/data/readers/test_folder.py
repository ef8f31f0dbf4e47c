import shutil
from pathlib import Path

import pytest

from nscl.data.errors import DataError, DataNotFoundError
from nscl.data.readers.folder import list_folder


def test_files_labels_and_names(picture_folder: Path) -> None:
    listing = list_folder(picture_folder)
    assert listing.class_names == ("ant", "bee", "cat", "dog")
    assert listing.train.labels.tolist() == [label for label in range(4) for _ in range(6)]
    assert [path.parent.name for path in listing.test.files] == sorted(
        ["ant", "bee", "cat", "dog"] * 3
    )


def test_differing_classes_are_named(picture_folder: Path) -> None:
    shutil.rmtree(picture_folder / "test" / "cat")
    with pytest.raises(DataError, match=r"'cat' is in train but not in test \(1 differ\)"):
        list_folder(picture_folder)
    (picture_folder / "test" / "cow").mkdir()
    with pytest.raises(DataError, match=r"\(2 differ\)"):
        list_folder(picture_folder)


def test_missing_parts_are_named(picture_folder: Path) -> None:
    for path in (picture_folder / "train" / "bee").iterdir():
        path.unlink()
    with pytest.raises(DataNotFoundError, match=r"train/bee has no pictures"):
        list_folder(picture_folder)
    shutil.rmtree(picture_folder / "test")
    with pytest.raises(DataNotFoundError, match=r"test is not a folder; pictures are expected in"):
        list_folder(picture_folder)
    (picture_folder / "test").mkdir()
    with pytest.raises(DataNotFoundError, match="no class folders"):
        list_folder(picture_folder)
