"""The benchmarks by name with descriptions; listing them imports neither torch nor numpy.

>>> [entry.name for entry in list_benchmarks()][0]
'split-digits-5'
>>> find_benchmark("split-cifar100-10").tasks
10
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nscl.data.disk.canonical import DATASETS, Dataset
from nscl.data.errors import UnknownBenchmarkError
from nscl.data.notices import Notify, log_notice
from nscl.messages import did_you_mean

if TYPE_CHECKING:
    from nscl.data.tasks import TaskStream

Order = Literal["natural", "random"]
Scenario = Literal["task", "domain", "class"]
Kind = Literal["images", "texts"]
FOLDER_PREFIX = "folder:"
TEXT_PREFIX = "text:"
SCENARIOS: dict[Scenario, str] = {
    "task": "a head per task; the task of a test sample is known",
    "domain": "one head of the same classes for all tasks",
    "class": "one growing head over all classes seen so far; the task is not known",
}


@dataclass(frozen=True)
class Benchmark:
    """One entry; ``tasks`` is the default number, or None if the user must give it."""

    name: str
    dataset: str
    variant: Literal["split", "permuted", "rotated", "folder", "text"]
    tasks: int | None
    scenario: Scenario
    description: str

    @property
    def kind(self) -> Kind:
        """What is to be classified."""
        return "texts" if self.variant == "text" else "images"

    @property
    def embedded(self) -> bool:
        """True if no file is needed, because the data come with scikit-learn."""
        return self.dataset == "digits"


@dataclass(frozen=True)
class StreamRequest:
    """Which stream is wanted: a benchmark, and what is to differ from its usual form.

    The fields are those of ``open_stream``; None stands for the benchmark's own value.
    """

    benchmark: str
    data_dir: str | os.PathLike[str] | None = None
    order: Order = "natural"
    seed: int = 0
    tasks: int | None = None
    size: int | None = None
    scenario: Scenario | None = None
    max_bytes: int | None = None
    tokenizer: str | None = None
    length: int | None = None

    @property
    def entry(self) -> Benchmark:
        """The benchmark's entry."""
        return find_benchmark(self.benchmark)


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
    Benchmark(
        "clinc150-10",
        "clinc150",
        "text",
        10,
        "task",
        "CLINC150, short requests to an assistant, 10 domains of 15 intents",
    ),
    Benchmark(
        "banking77-7",
        "banking77",
        "text",
        7,
        "task",
        "Banking77, questions of a bank's customers, 7 tasks of 11 intents",
    ),
    Benchmark(
        "text:PATH",
        "text",
        "text",
        None,
        "task",
        "your texts in PATH/train.csv and PATH/test.csv (or .jsonl): text, label, maybe task",
    ),
)

BENCHMARKS: dict[str, Benchmark] = {entry.name: entry for entry in _ENTRIES}


def list_benchmarks() -> tuple[Benchmark, ...]:
    """Return every entry, in display order."""
    return tuple(BENCHMARKS.values())


def is_own(name: str) -> bool:
    """Whether the data are the user's own, in a folder: nothing to check, fetch or tune for.

    >>> is_own("folder:photos"), is_own("text:mails"), is_own("clinc150-10")
    (True, True, False)
    """
    return name.startswith((FOLDER_PREFIX, TEXT_PREFIX))


def has_texts(name: str) -> bool:
    """Whether a benchmark is of texts; a name that is not known is a stream of your own.

    >>> has_texts("clinc150-10"), has_texts("split-digits-5"), has_texts("mine")
    (True, False, False)
    """
    return name.startswith(TEXT_PREFIX) or (name in BENCHMARKS and BENCHMARKS[name].kind == "texts")


def find_benchmark(name: str) -> Benchmark:
    """Return the entry of that name; the error for an unknown name suggests the nearest."""
    for prefix in (FOLDER_PREFIX, TEXT_PREFIX):
        if name.startswith(prefix):
            return BENCHMARKS[f"{prefix}PATH"]
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
    tokenizer: str | None = None,
    length: int | None = None,
    notify: Notify = log_notice,
) -> "TaskStream":
    """Open a benchmark as a stream of tasks.

    ``order="random"`` shuffles classes (or domains) by ``seed``; ``tasks`` overrides the number of
    tasks and must divide the number of classes; ``size`` resizes the pictures to size × size (a
    folder's default is 32); ``scenario`` overrides the benchmark's own (``SCENARIOS``). A folder
    whose pictures need more than ``max_bytes`` of memory is decoded during training instead.
    Texts become at most ``length`` tokens (32) of a ``tokenizer`` (``words``, which needs nothing).
    ``notify`` receives one line when something takes long or differs from the usual.

    >>> stream = open_stream("split-digits-5")
    >>> len(stream), stream.image_shape, stream[0].class_names
    (5, (1, 8, 8), ('0', '1'))
    """
    request = StreamRequest(
        benchmark=name,
        data_dir=data_dir,
        order=order,
        seed=seed,
        tasks=tasks,
        size=size,
        scenario=scenario,
        max_bytes=max_bytes,
        tokenizer=tokenizer,
        length=length,
    )
    # Late, because this imports torch.
    from nscl.data.opening import open_request

    return open_request(request, notify=notify)


def _unknown(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known, otherwise=f"; known names: {', '.join(known)}")
    return f"there is no benchmark {name!r}{hint}"
