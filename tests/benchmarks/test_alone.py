"""A figure of the table is measured by a process that has done nothing else."""

import os

import torch
from benchmarks.alone import alone
from benchmarks.figure import Figure
from benchmarks.timing import Stopwatch


def who(watch: Stopwatch) -> Figure:
    return Figure("who", str(torch.get_num_threads()), os.getpid(), watch.seconds, "")


def test_a_process_of_its_own() -> None:
    first, second = (alone(who, Stopwatch(7.0), threads) for threads in (1, 2))
    assert len({os.getpid(), first.ours, second.ours}) == 3
    assert (first.title, second.title, first.reference) == ("1", "2", 7.0)
