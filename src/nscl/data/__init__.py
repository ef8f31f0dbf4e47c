"""Benchmarks as streams of tasks: readers, splits, augmentation, batches, pools, the catalogue.

Names are imported when they are first used: listing the benchmarks needs neither torch nor numpy.
Checking and fetching files are in `nscl.data.fetch`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nscl.data.augment import crop_flip, normalise
    from nscl.data.batches import Batches
    from nscl.data.catalogue import (
        BENCHMARKS,
        Benchmark,
        find_benchmark,
        list_benchmarks,
        open_stream,
    )
    from nscl.data.episodic import EpisodicMemory
    from nscl.data.errors import (
        CorruptDataError,
        DataError,
        FetchError,
        MissingDataError,
        UnknownBenchmarkError,
    )
    from nscl.data.files import FileSplit
    from nscl.data.pools import UnlabelledPool, open_pool
    from nscl.data.streams import stream_from_datasets
    from nscl.data.tasks import Split, Task, TaskStream

__all__ = [
    "BENCHMARKS",
    "Batches",
    "Benchmark",
    "CorruptDataError",
    "DataError",
    "EpisodicMemory",
    "FetchError",
    "FileSplit",
    "MissingDataError",
    "Split",
    "Task",
    "TaskStream",
    "UnknownBenchmarkError",
    "UnlabelledPool",
    "crop_flip",
    "find_benchmark",
    "list_benchmarks",
    "normalise",
    "open_pool",
    "open_stream",
    "stream_from_datasets",
]

_HOMES = {
    "augment": ("crop_flip", "normalise"),
    "batches": ("Batches",),
    "catalogue": ("BENCHMARKS", "Benchmark", "find_benchmark", "list_benchmarks", "open_stream"),
    "episodic": ("EpisodicMemory",),
    "errors": (
        "CorruptDataError",
        "DataError",
        "FetchError",
        "MissingDataError",
        "UnknownBenchmarkError",
    ),
    "files": ("FileSplit",),
    "pools": ("UnlabelledPool", "open_pool"),
    "streams": ("stream_from_datasets",),
    "tasks": ("Split", "Task", "TaskStream"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
