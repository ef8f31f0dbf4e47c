"""Every figure in a process of its own: what was measured before must not change it.

The covariances came out at 3.2 after the figures of the steps and at 4.2 alone, with the same code.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from benchmarks.catalogue import Measure
from benchmarks.figure import Figure
from benchmarks.timing import Stopwatch


def alone(measure: Measure, watch: Stopwatch, threads: int) -> Figure:
    """What a figure's function finds in a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, measure, watch, threads).result()


def _measured(measure: Measure, watch: Stopwatch, threads: int) -> Figure:
    torch.set_num_threads(threads)
    return measure(watch)
