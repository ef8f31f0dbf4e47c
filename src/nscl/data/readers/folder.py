"""Class folders of pictures: find the files and their labels, without decoding them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nscl.data.errors import DataError, DataNotFoundError
from nscl.data.readers.pictures import picture_files
from nscl.data.readers.raw import Labels


@dataclass(frozen=True, eq=False)
class FolderPart:
    """The picture files of one part with their labels."""

    files: tuple[Path, ...]
    labels: Labels


@dataclass(frozen=True, eq=False)
class FolderListing:
    """What ``PATH/train`` and ``PATH/test`` hold; classes in alphabetical order."""

    train: FolderPart
    test: FolderPart
    class_names: tuple[str, ...]


def list_folder(root: Path) -> FolderListing:
    """List the pictures in ``root/train/CLASS`` and ``root/test/CLASS``."""
    train, test = (_class_folders(root, part) for part in ("train", "test"))
    if differing := sorted(set(train) ^ set(test)):
        name = differing[0]
        here, there = ("train", "test") if name in train else ("test", "train")
        raise DataError(
            f"the classes in {root}/train and {root}/test differ: {name!r} is in {here} but not in "
            f"{there} ({len(differing)} differ); give both the same class folders"
        )
    names = tuple(sorted(train))
    return FolderListing(_part(root / "train", names), _part(root / "test", names), names)


def _class_folders(root: Path, part: str) -> list[str]:
    folder = root / part
    if not folder.is_dir():
        raise DataNotFoundError(
            f"{folder} is not a folder; pictures are expected in {root}/train/CLASS/ and "
            f"{root}/test/CLASS/"
        )
    names = [path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]
    if not names:
        raise DataNotFoundError(f"{folder} has no class folders with pictures")
    return names


def _part(folder: Path, names: tuple[str, ...]) -> FolderPart:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = picture_files(folder / name)
        if not found:
            raise DataNotFoundError(
                f"{folder / name} has no pictures; add some or remove the class"
            )
        files += found
        labels += [label] * len(found)
    return FolderPart(tuple(files), np.array(labels, dtype=np.int64))
