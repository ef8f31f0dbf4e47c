"""Open a benchmark: find its files, read them and build the stream of tasks."""

import os
from collections.abc import Callable
from pathlib import Path

from nscl.data.catalogue import FOLDER_PREFIX, SCENARIOS, Benchmark, Order, Scenario
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


def open_benchmark(
    name: str,
    entry: Benchmark,
    *,
    data_dir: str | os.PathLike[str] | None,
    order: Order,
    seed: int,
    tasks: int | None,
    size: int | None,
    scenario: Scenario | None,
    max_bytes: int | None,
    tokenizer: str | None,
    length: int | None,
    notify: Notify,
) -> TaskStream:
    """Open an entry; the arguments are those of `nscl.data.catalogue.open_stream`."""
    if size is not None and size < 1:
        raise DataError(f"size must be a positive number, not {size}")
    if scenario is not None and scenario not in SCENARIOS:
        raise DataError(f"scenario {scenario!r} is not known; choose {', '.join(SCENARIOS)}")
    scenario = scenario or entry.scenario
    _check_kind(name, entry, size=size, max_bytes=max_bytes, tokenizer=tokenizer, length=length)
    if entry.kind == "texts":
        return open_texts(
            name,
            entry,
            data_dir=data_dir,
            order=order,
            seed=seed,
            tasks=tasks,
            scenario=scenario,
            tokenizer=tokenizer,
            length=length,
        )
    if entry.variant == "folder":
        path = Path(name.removeprefix(FOLDER_PREFIX)).expanduser()
        select, names = folder_selector(path, size=size, max_bytes=max_bytes, notify=notify)
        count = _required_tasks(tasks, name, names)
        built = build_tasks(select, names, tasks=count, order=order, seed=seed)
        numbers = measure_mean_std(built[0].train)
        return TaskStream(name, for_scenario(built, scenario), scenario, *numbers)
    dataset = DATASETS[entry.dataset]
    raw = load_dataset(entry.dataset, benchmark=name, data_dir=data_dir, notify=notify)
    count = entry.tasks or 1 if tasks is None else tasks
    built = _tasks_of(raw, entry, count, order=order, seed=seed, size=size)
    if raw.note:
        notify(f"{name}: {raw.note}")
    built = for_scenario(built, scenario)
    return TaskStream(name, built, scenario, dataset.mean, dataset.std, dataset.augment, raw.note)


def _check_kind(name: str, entry: Benchmark, **options: object) -> None:
    """Refuse options that only pictures have, or only texts."""
    foreign = ("size", "max_bytes") if entry.kind == "texts" else ("tokenizer", "length")
    other = "pictures" if entry.kind == "texts" else "texts"
    for option in foreign:
        if options[option] is not None:
            raise DataError(f"{option} is for {other}; {name} has {entry.kind}: leave it out")


def _required_tasks(tasks: int | None, name: str, class_names: tuple[str, ...]) -> int:
    """Return the number of tasks, which has no default for the user's own pictures."""
    if tasks is None:
        choices = ", ".join(map(str, task_counts(len(class_names))))
        raise DataError(f"give the number of tasks of {name} (--tasks): {choices}")
    return tasks


def _tasks_of(
    raw: RawDataset, entry: Benchmark, tasks: int, *, order: Order, seed: int, size: int | None
) -> tuple[Task, ...]:
    select = split_raw(raw, size)
    if entry.variant == "split":
        return build_tasks(select, raw.class_names, tasks=tasks, order=order, seed=seed)
    train, test = select(tuple(range(len(raw.class_names))))
    if tasks < 1:
        raise DataError(f"a stream needs at least one task, not {tasks}")
    permuted = entry.variant == "permuted"
    changes = permutations(train.image_shape, tasks, seed) if permuted else rotations(tasks, seed)
    return domain_tasks(train, test, raw.class_names, changes, order=order, seed=seed)
