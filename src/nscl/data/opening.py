"""Open a benchmark: find its files, read them and build the stream of tasks."""

import os
from collections.abc import Callable
from pathlib import Path

from nscl.data.catalogue import FOLDER_PREFIX, SCENARIOS, Benchmark, Scenario, StreamRequest
from nscl.data.disk.canonical import DATASETS
from nscl.data.disk.decoded import read_decoded
from nscl.data.disk.locate import require
from nscl.data.errors import DataError, reading
from nscl.data.images.domain import domain_tasks, permutations, rotations
from nscl.data.images.folders import folder_selector
from nscl.data.notices import Notify, log_notice
from nscl.data.readers.cifar import read_cifar10, read_cifar100
from nscl.data.readers.digits import read_digits
from nscl.data.readers.idx import read_fashion_mnist
from nscl.data.readers.raw import RawDataset
from nscl.data.readers.tinyimagenet import read_tinyimagenet
from nscl.data.splitting import task_counts
from nscl.data.streams import build_tasks, for_scenario, measure_mean_std, split_raw
from nscl.data.tasks import Task, TaskStream
from nscl.data.texts.opening import open_texts

_READERS: dict[str, Callable[[Path], RawDataset]] = {
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "fashion-mnist": read_fashion_mnist,
}


def load_dataset(
    name: str,
    *,
    benchmark: str = "",
    data_dir: str | os.PathLike[str] | None = None,
    notify: Notify = log_notice,
) -> RawDataset:
    """Read a complete data set of the catalogue; messages name it as ``benchmark``."""
    if name == "digits":
        return read_digits()
    with reading(DATASETS[name].title):
        found = require(DATASETS[name], benchmark or name, data_dir)
        if name == "tinyimagenet":
            return read_decoded(found.path, read_tinyimagenet, notify=notify)
        return _READERS[name](found.path)


def open_request(request: StreamRequest, *, notify: Notify = log_notice) -> TaskStream:
    """Open what is requested; `nscl.data.catalogue.open_stream` explains the fields."""
    entry = request.entry
    _check(request, entry)
    scenario = request.scenario or entry.scenario
    if entry.kind == "texts":
        return open_texts(request, entry, scenario)
    if entry.variant == "folder":
        return _open_folder(request, scenario, notify)
    name, dataset = request.benchmark, DATASETS[entry.dataset]
    raw = load_dataset(entry.dataset, benchmark=name, data_dir=request.data_dir, notify=notify)
    built = for_scenario(_tasks_of(raw, entry, request), scenario)
    if raw.note:
        notify(f"{name}: {raw.note}")
    return TaskStream(name, built, scenario, dataset.mean, dataset.std, dataset.augment, raw.note)


def _open_folder(request: StreamRequest, scenario: Scenario, notify: Notify) -> TaskStream:
    """Open the user's own pictures."""
    path = Path(request.benchmark.removeprefix(FOLDER_PREFIX)).expanduser()
    select, names = folder_selector(
        path, size=request.size, max_bytes=request.max_bytes, notify=notify
    )
    count = _required_tasks(request.tasks, request.benchmark, names)
    built = build_tasks(select, names, tasks=count, order=request.order, seed=request.seed)
    numbers = measure_mean_std(built[0].train)
    return TaskStream(request.benchmark, for_scenario(built, scenario), scenario, *numbers)


def _check(request: StreamRequest, entry: Benchmark) -> None:
    """Refuse wrong values, and options that only pictures have, or only texts."""
    if request.size is not None and request.size < 1:
        raise DataError(f"size must be a positive number, not {request.size}")
    if request.scenario is not None and request.scenario not in SCENARIOS:
        known = ", ".join(SCENARIOS)
        raise DataError(f"scenario {request.scenario!r} is not known; choose {known}")
    foreign = ("size", "max_bytes") if entry.kind == "texts" else ("tokenizer", "length")
    other = "pictures" if entry.kind == "texts" else "texts"
    for option in foreign:
        if getattr(request, option) is not None:
            name = request.benchmark
            raise DataError(f"{option} is for {other}; {name} has {entry.kind}: leave it out")


def _required_tasks(tasks: int | None, name: str, class_names: tuple[str, ...]) -> int:
    """Return the number of tasks, which has no default for the user's own pictures."""
    if tasks is None:
        choices = ", ".join(map(str, task_counts(len(class_names))))
        raise DataError(f"give the number of tasks of {name} (--tasks): {choices}")
    return tasks


def _tasks_of(raw: RawDataset, entry: Benchmark, request: StreamRequest) -> tuple[Task, ...]:
    tasks = entry.tasks or 1 if request.tasks is None else request.tasks
    order, seed = request.order, request.seed
    select = split_raw(raw, request.size)
    if entry.variant == "split":
        return build_tasks(select, raw.class_names, tasks=tasks, order=order, seed=seed)
    train, test = select(tuple(range(len(raw.class_names))))
    if tasks < 1:
        raise DataError(f"a stream needs at least one task, not {tasks}")
    permuted = entry.variant == "permuted"
    changes = permutations(train.image_shape, tasks, seed) if permuted else rotations(tasks, seed)
    return domain_tasks(train, test, raw.class_names, changes, order=order, seed=seed)
