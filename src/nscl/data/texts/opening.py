"""Open a benchmark of texts: read it, tokenize everything once, divide it into tasks."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nscl.data.catalogue import TEXT_PREFIX, Benchmark, Scenario, StreamRequest
from nscl.data.disk.canonical import DATASETS
from nscl.data.disk.locate import require
from nscl.data.errors import DataError, reading
from nscl.data.inputs import rows
from nscl.data.splitting import assign_classes, ordered, task_counts
from nscl.data.streams import for_scenario, tasks_of
from nscl.data.tasks import Split, Task, TaskStream
from nscl.data.texts.folder import read_text_folder
from nscl.data.texts.intents import read_banking77, read_clinc150
from nscl.data.texts.raw import RawTexts, TextPart
from nscl.data.texts.split import TextSplit
from nscl.data.texts.tokenizers import DEFAULT_LENGTH, Tokenizer, open_tokenizer

_READERS: dict[str, Callable[[Path], RawTexts]] = {
    "clinc150": read_clinc150,
    "banking77": read_banking77,
}
_Tokens = tuple[dict[str, Tensor], TextPart]


def open_texts(request: StreamRequest, entry: Benchmark, scenario: Scenario) -> TaskStream:
    """Open an entry of texts in a scenario."""
    if request.length is not None and request.length < 2:
        raise DataError(f"length must be at least 2 tokens, not {request.length}")
    opened = open_tokenizer(request.tokenizer or "words")
    raw = _read(request, entry)
    names, groups = _groups(request, entry, raw)
    select = _selector(raw, opened, request.length or DEFAULT_LENGTH)
    built = tasks_of(select, raw.class_names, groups, names=names)
    if scenario == "domain" and raw.groups and entry.tasks is None:
        _check_same_classes(request.benchmark, built)
    return TaskStream(request.benchmark, for_scenario(built, scenario), scenario, (), ())


def _read(request: StreamRequest, entry: Benchmark) -> RawTexts:
    if entry.dataset not in _READERS:
        folder = Path(request.benchmark.removeprefix(TEXT_PREFIX)).expanduser()
        with reading(folder):
            return read_text_folder(folder)
    dataset = DATASETS[entry.dataset]
    with reading(dataset.title):
        found = require(dataset, request.benchmark, request.data_dir)
        return _READERS[entry.dataset](found.path)


def _groups(
    request: StreamRequest, entry: Benchmark, raw: RawTexts
) -> tuple[tuple[str, ...] | None, tuple[tuple[int, ...], ...]]:
    """Return the tasks' names, where they have names of their own, and their classes.

    A random order shuffles classes; where they come in groups it shuffles the groups.
    """
    name, tasks, order, seed = request.benchmark, request.tasks, request.order, request.seed
    if not raw.groups:
        count = entry.tasks if tasks is None else tasks
        if count is None:
            choices = ", ".join(map(str, task_counts(len(raw.class_names))))
            raise DataError(f"give the number of tasks of {name} (--data.tasks): {choices}")
        return None, assign_classes(len(raw.class_names), count, order=order, seed=seed)
    groups = [raw.groups[place] for place in ordered(len(raw.groups), order=order, seed=seed)]
    if tasks in (None, len(groups)):
        return tuple(group.name for group in groups), tuple(group.classes for group in groups)
    if entry.tasks is None:
        raise DataError(f"{name} names its {len(groups)} tasks: leave out --data.tasks {tasks}")
    line = [label for group in groups for label in group.classes]
    parts = assign_classes(len(line), tasks)
    return None, tuple(tuple(line[place] for place in part) for part in parts)


def _selector(
    raw: RawTexts, tokenizer: Tokenizer, length: int
) -> Callable[[tuple[int, ...]], tuple[Split, Split]]:
    tokens = [(tokenizer(part.texts, length), part) for part in (raw.train, raw.test)]
    classes, vocabulary = len(raw.class_names), tokenizer.vocabulary

    def select(group: tuple[int, ...]) -> tuple[Split, Split]:
        train, test = (_cut(part, group, classes, vocabulary) for part in tokens)
        return train, test

    return select


def _cut(tokens: _Tokens, group: tuple[int, ...], classes: int, vocabulary: int) -> TextSplit:
    inputs, part = tokens
    position = np.full(classes, -1, dtype=np.int64)
    position[list(group)] = np.arange(len(group))
    labels = torch.from_numpy(position[part.labels])
    chosen = torch.nonzero(labels >= 0)[:, 0]
    cut = rows(inputs, chosen)
    assert isinstance(cut, dict)
    return TextSplit(cut, labels[chosen], vocabulary=vocabulary)


def _check_same_classes(name: str, tasks: tuple[Task, ...]) -> None:
    for task in tasks:
        if task.class_names != tasks[0].class_names:
            raise DataError(
                f"{name} cannot be a domain stream: task {task.name!r} has other labels than "
                f"{tasks[0].name!r}"
            )
