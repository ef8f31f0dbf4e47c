"""Benchmarks as streams of tasks: readers, splits, augmentation, batches, pools, the catalogue.

Names are imported when they are first used: listing the benchmarks needs neither torch nor numpy.
Checking and fetching files are in `nscl.data.disk.fetch`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nscl.data.batches import Batches
    from nscl.data.catalogue import (
        BENCHMARKS,
        Benchmark,
        find_benchmark,
        list_benchmarks,
        open_stream,
    )
    from nscl.data.errors import (
        CorruptDataError,
        DataError,
        DataNotFoundError,
        FetchError,
        UnknownBenchmarkError,
    )
    from nscl.data.images.augment import crop_flip, normalise
    from nscl.data.images.files import FileSplit
    from nscl.data.stored.episodic import EpisodicMemory
    from nscl.data.streams import stream_from_datasets
    from nscl.data.tasks import Split, Task, TaskStream
    from nscl.data.unlabelled.pools import UnlabelledPool, open_pool

__all__ = [
    "BENCHMARKS",
    "Batches",
    "Benchmark",
    "CorruptDataError",
    "DataError",
    "DataNotFoundError",
    "EpisodicMemory",
    "FetchError",
    "FileSplit",
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
    "images.augment": ("crop_flip", "normalise"),
    "batches": ("Batches",),
    "catalogue": ("BENCHMARKS", "Benchmark", "find_benchmark", "list_benchmarks", "open_stream"),
    "stored.episodic": ("EpisodicMemory",),
    "errors": (
        "CorruptDataError",
        "DataError",
        "FetchError",
        "DataNotFoundError",
        "UnknownBenchmarkError",
    ),
    "images.files": ("FileSplit",),
    "unlabelled.pools": ("UnlabelledPool", "open_pool"),
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
