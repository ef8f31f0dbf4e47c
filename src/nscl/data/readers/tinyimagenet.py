"""TinyImageNet-200 from its folder, zip or tar; classes in alphabetical order of their wnids.

The 64×64 JPEGs are in ``train/<wnid>/images/`` and ``val/images/``; ``val/val_annotations.txt``
says which class a validation picture belongs to. Pictures that someone has already sorted into
``val/<wnid>/`` are read as well. The validation pictures are the test set: the published test
pictures have no labels.
"""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from nscl.data.errors import CorruptDataError
from nscl.data.readers.archives import walk_files
from nscl.data.readers.pictures import decode_picture
from nscl.data.readers.raw import Labels, Pixels, RawDataset

_SIZE = 64
_FULL = (100_000, 10_000)
_TEXTS = ("words.txt", "val/val_annotations.txt")


@dataclass
class _Contents:
    train: dict[tuple[str, str], Pixels] = field(default_factory=dict)
    val: dict[tuple[str, str], Pixels] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def read_tinyimagenet(source: Path) -> RawDataset:
    """Read TinyImageNet from a folder or archive; a part of it is read and noted as a part."""
    contents = _collect(source)
    wnids = sorted({wnid for wnid, _ in contents.train})
    if not wnids:
        raise CorruptDataError(f"{source} has no pictures in train/<wnid>/images")
    _place_validation(source, contents, frozenset(wnids))
    train, test = _stack(contents.train, wnids), _stack(contents.val, wnids)
    names = _class_names(contents.texts.get("words.txt", ""), wnids)
    return RawDataset(*train, *test, names, _note(len(train[1]), len(test[1])))


def _collect(source: Path) -> _Contents:
    contents = _Contents()
    for path, content in walk_files(source, lambda path: _inside(path) is not None):
        inside = _inside(path)
        if inside in _TEXTS:
            contents.texts[str(inside)] = content.decode("utf-8", "replace")
        elif inside is not None:
            part, wnid, name = _place_of(inside)
            pixels = decode_picture(content, name=f"{source}/{path}")
            if pixels.shape != (3, _SIZE, _SIZE):
                raise CorruptDataError(f"{source}/{path} is not a 64×64 picture")
            (contents.train if part == "train" else contents.val)[wnid, name] = pixels
    return contents


def _inside(path: str) -> str | None:
    """Return the path below the data set's top folder, or None for what is not needed."""
    parts = PurePosixPath(path).parts
    if parts[-1].startswith("."):  # macOS leaves "._" twins beside the pictures
        return None
    for start, part in enumerate(parts[:3]):
        inside = "/".join(parts[start:])
        if inside in _TEXTS or (part in ("train", "val") and inside.lower().endswith(".jpeg")):
            return inside
    return None


def _place_of(inside: str) -> tuple[str, str, str]:
    """Return (part, wnid, file name); the wnid is empty where only the annotations know it."""
    part, *folders, name = inside.split("/")
    return part, "" if not folders or folders[0] == "images" else folders[0], name


def _place_validation(source: Path, contents: _Contents, wnids: frozenset[str]) -> None:
    lines = contents.texts.get("val/val_annotations.txt", "").splitlines()
    wnid_of = {
        name: wnid for name, wnid, *_ in (line.split("\t") for line in lines if "\t" in line)
    }
    for key in [key for key in contents.val if not key[0]]:
        contents.val[wnid_of.pop(key[1], ""), key[1]] = contents.val.pop(key)
    foreign = [name for wnid, name in contents.val if wnid not in wnids]
    if foreign:
        raise CorruptDataError(
            f"{source}: {len(foreign):,} validation pictures have no class, the first is "
            f"{foreign[0]}; val/val_annotations.txt is missing or incomplete"
        )
    sorted_by_hand = {name for _, name in contents.val}
    if lacking := [name for name in wnid_of if name not in sorted_by_hand]:
        raise CorruptDataError(
            f"{source} lacks {len(lacking):,} of the pictures in val/val_annotations.txt, "
            f"the first is {lacking[0]}"
        )
    if empty := sorted(wnids - {wnid for wnid, _ in contents.val}):
        raise CorruptDataError(f"{source} has no validation picture of class {empty[0]}")


def _stack(pictures: dict[tuple[str, str], Pixels], wnids: list[str]) -> tuple[Pixels, Labels]:
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    keys = sorted(pictures)
    images = np.empty((len(keys), 3, _SIZE, _SIZE), dtype=np.uint8)
    for row, key in enumerate(keys):
        images[row] = pictures.pop(key)  # let go of each picture: there are gigabytes of them
    return images, np.array([label_of[wnid] for wnid, _ in keys], dtype=np.int64)


def _class_names(words: str, wnids: list[str]) -> tuple[str, ...]:
    lines = (line.partition("\t") for line in words.splitlines())
    name_of = {wnid: names.split(",")[0].strip() for wnid, _, names in lines}
    return tuple(name_of.get(wnid) or wnid for wnid in wnids)


def _note(train: int, test: int) -> str:
    if (train, test) == _FULL:
        return ""
    return (
        f"a part of TinyImageNet: {train:,} of {_FULL[0]:,} training and "
        f"{test:,} of {_FULL[1]:,} test pictures"
    )
