"""The user's own texts: ``PATH/train.csv`` and ``PATH/test.csv``, or TSV, or JSON lines.

With a column ``task`` the files say which texts make a task; a label is then a class of each task
that has it. Without it, labels are divided into tasks as the class folders of pictures are.
"""

from pathlib import Path

import numpy as np

from nscl.data.errors import DataError, DataNotFoundError
from nscl.data.texts.raw import ClassGroup, RawTexts, TextPart
from nscl.data.texts.tables import SUFFIXES, Row, read_table

_Class = tuple[str, str]  # task ("" without that column) and label


def read_text_folder(folder: Path) -> RawTexts:
    """Read both files; classes are the training file's labels, in order, task by task."""
    files = [_file(folder, part) for part in ("train", "test")]
    train, test = (read_table(file) for file in files)
    classes = _classes(train)
    for row in test:
        if _class_of(row) not in classes:
            raise DataError(f"{files[1]}, line {row.line}: {_unknown(row, classes)}")
    return RawTexts(
        _part(train, classes),
        _part(test, classes),
        tuple(label for _, label in classes),
        _groups(classes),
    )


def _file(folder: Path, part: str) -> Path:
    found = [path for path in (folder / f"{part}{s}" for s in SUFFIXES) if path.is_file()]
    if len(found) > 1:
        raise DataError(f"{folder} has {found[0].name} and {found[1].name}: keep one of them")
    if not found:
        expected = f"{part}.csv (or {', '.join(SUFFIXES[1:])})"
        what = f"has no {expected}" if folder.is_dir() else f"is not a folder with {expected}"
        raise DataNotFoundError(f"{folder} {what}; text:PATH is a folder with train and test files")
    return found[0]


def _class_of(row: Row) -> _Class:
    return row.task, row.label


def _classes(rows: list[Row]) -> dict[_Class, int]:
    """Tasks as they first appear, the labels of each in order."""
    tasks = dict.fromkeys(row.task for row in rows)
    labels = {task: {row.label for row in rows if row.task == task} for task in tasks}
    ordered = [(task, label) for task in tasks for label in sorted(labels[task], key=_natural)]
    return {name: number for number, name in enumerate(ordered)}


def _natural(label: str) -> tuple[int, str]:
    """Numbers by value, before words."""
    return (int(label), "") if label.isdecimal() else (2**63, label)


def _unknown(row: Row, classes: dict[_Class, int]) -> str:
    if row.task not in {task for task, _ in classes}:
        return f"the task {row.task!r} is in the test file only"
    place = f" of task {row.task!r}" if row.task else ""
    return f"the label {row.label!r}{place} is in the test file only: nothing can learn it"


def _part(rows: list[Row], classes: dict[_Class, int]) -> TextPart:
    labels = np.array([classes[_class_of(row)] for row in rows], dtype=np.int64)
    return TextPart(tuple(row.text for row in rows), labels)


def _groups(classes: dict[_Class, int]) -> tuple[ClassGroup, ...]:
    tasks = dict.fromkeys(task for task, _ in classes)
    if tuple(tasks) == ("",):
        return ()
    return tuple(
        ClassGroup(task, tuple(number for (own, _), number in classes.items() if own == task))
        for task in tasks
    )
