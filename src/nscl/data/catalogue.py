"""The benchmarks by name, as data with a description; listing them imports neither torch nor numpy.

>>> [entry.name for entry in list_benchmarks()][0]
'split-digits-5'
>>> find_benchmark("split-cifar100-10").tasks
10
"""

import difflib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nscl.data.canonical import DATASETS, Dataset
from nscl.data.errors import UnknownBenchmarkError
from nscl.data.notices import Notify, log_notice

if TYPE_CHECKING:
    from nscl.data.tasks import TaskStream

Order = Literal["natural", "random"]
Scenario = Literal["task", "domain"]
FOLDER_PREFIX = "folder:"


@dataclass(frozen=True)
class Benchmark:
    """One entry: ``tasks`` is the default number, None where the user must say it."""

    name: str
    dataset: str
    variant: Literal["split", "permuted", "rotated", "folder"]
    tasks: int | None
    scenario: Scenario
    description: str

    @property
    def embedded(self) -> bool:
        """True where no file is needed: the data come with scikit-learn."""
        return self.dataset == "digits"


_ENTRIES = (
    Benchmark(
        "split-digits-5",
        "digits",
        "split",
        5,
        "task",
        "scikit-learn's 1,797 handwritten digits, 8×8 grey, 5 tasks of 2 classes; no download",
    ),
    Benchmark(
        "split-cifar100-10",
        "cifar100",
        "split",
        10,
        "task",
        "CIFAR-100, 32×32 colour, 10 tasks of 10 classes (the paper's 10-split)",
    ),
    Benchmark(
        "split-cifar100-20",
        "cifar100",
        "split",
        20,
        "task",
        "CIFAR-100, 32×32 colour, 20 tasks of 5 classes (the paper's 20-split)",
    ),
    Benchmark(
        "split-tinyimagenet-25",
        "tinyimagenet",
        "split",
        25,
        "task",
        "TinyImageNet-200, 64×64 colour, 25 tasks of 8 classes (the paper's 25-split)",
    ),
    Benchmark(
        "split-cifar10-5",
        "cifar10",
        "split",
        5,
        "task",
        "CIFAR-10, 32×32 colour, 5 tasks of 2 classes",
    ),
    Benchmark(
        "split-fashion-mnist-5",
        "fashion-mnist",
        "split",
        5,
        "task",
        "Fashion-MNIST, 28×28 grey, 5 tasks of 2 classes",
    ),
    Benchmark(
        "permuted-digits",
        "digits",
        "permuted",
        5,
        "domain",
        "the digits under another fixed permutation of the pixels per task; one head; no download",
    ),
    Benchmark(
        "rotated-digits",
        "digits",
        "rotated",
        5,
        "domain",
        "the digits turned by another fixed angle in 0°–180° per task; one head; no download",
    ),
    Benchmark(
        "permuted-fashion-mnist",
        "fashion-mnist",
        "permuted",
        5,
        "domain",
        "Fashion-MNIST under another fixed permutation of the pixels per task; one head",
    ),
    Benchmark(
        "rotated-fashion-mnist",
        "fashion-mnist",
        "rotated",
        5,
        "domain",
        "Fashion-MNIST turned by another fixed angle in 0°–180° per task; one head",
    ),
    Benchmark(
        "folder:PATH",
        "folder",
        "folder",
        None,
        "task",
        "your pictures in PATH/train/CLASS/ and PATH/test/CLASS/, any format pillow opens",
    ),
)

BENCHMARKS: dict[str, Benchmark] = {entry.name: entry for entry in _ENTRIES}


def list_benchmarks() -> tuple[Benchmark, ...]:
    """Return every entry in the order in which it should be shown."""
    return tuple(BENCHMARKS.values())


def find_benchmark(name: str) -> Benchmark:
    """Return the entry of that name; an unknown one is an error that suggests the nearest."""
    if name.startswith(FOLDER_PREFIX):
        return BENCHMARKS["folder:PATH"]
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    raise UnknownBenchmarkError(_unknown(name, list(BENCHMARKS)))


def find_dataset(name: str) -> Dataset:
    """Return the data set behind a benchmark's name, or the data set of that name itself."""
    if name in DATASETS:
        return DATASETS[name]
    if name in BENCHMARKS and BENCHMARKS[name].dataset in DATASETS:
        return DATASETS[BENCHMARKS[name].dataset]
    raise UnknownBenchmarkError(_unknown(name, [*BENCHMARKS, *DATASETS]))


def open_stream(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    order: Order = "natural",
    seed: int = 0,
    tasks: int | None = None,
    size: int | None = None,
    scenario: Scenario | None = None,
    max_bytes: int | None = None,
    notify: Notify = log_notice,
) -> "TaskStream":
    """Open a benchmark as a stream of tasks.

    ``order="random"`` shuffles classes (or domains) by ``seed``; ``tasks`` overrides the number of
    tasks and must divide the number of classes; ``size`` resizes the pictures to size × size (a
    folder's default is 32); ``scenario`` overrides the benchmark's own. ``max_bytes`` is how much
    memory a folder's pictures may take before they are decoded while training instead. ``notify``
    receives one line when something takes long or goes another way.

    >>> stream = open_stream("split-digits-5")
    >>> len(stream), stream.image_shape, stream[0].class_names
    (5, (1, 8, 8), ('0', '1'))
    """
    # Late, because it brings torch with it.
    from nscl.data.opening import open_benchmark

    return open_benchmark(
        name,
        find_benchmark(name),
        data_dir=data_dir,
        order=order,
        seed=seed,
        tasks=tasks,
        size=size,
        scenario=scenario,
        max_bytes=max_bytes,
        notify=notify,
    )


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known names: {', '.join(known)}"
    return f"there is no benchmark {name!r}; {hint}"
