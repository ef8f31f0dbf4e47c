"""Figures of a report: planned and compared without matplotlib, drawn in processes where it pays.

matplotlib takes half a second to import. A report in which no figure has changed does without it.
"""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from nscl.reporting.errors import ReportError
from nscl.reporting.figures.plans import Plan, not_drawn, plans
from nscl.reporting.plot_data.missing import LeftOut

FEWEST = 4  # figures that make up for the start of one process
Job = tuple[Plan, Sequence[str]]  # a figure and the formats it is wanted in
Rendered = dict[str, bytes] | LeftOut


def rendered(jobs: Sequence[Job], *, processes: int = 1) -> Iterator[Rendered]:
    """The files of each figure, in order; with few figures no process is started."""
    workers = min(processes, len(jobs) // FEWEST)
    if workers < 2:
        yield from map(_render, jobs)
        return
    # Spawned, not forked: the caller may have threads.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_leave_ctrl_c)
    try:
        with pool:
            yield from pool.map(_render, jobs)
    except BrokenProcessPool as error:
        raise ReportError(
            "a process that draws figures was ended from outside (out of memory?): "
            "repeat the command; what is drawn is kept"
        ) from error


def _render(job: Job) -> Rendered:
    from nscl.reporting.figures.drawing import render

    return render(*job)


def _leave_ctrl_c() -> None:
    """The terminal's Ctrl-C reaches all processes; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


__all__ = ["Job", "Plan", "Rendered", "not_drawn", "plans", "rendered"]
