"""A measured figure with its reference and target, and how things are timed here."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the table: what we need, what the reference needs, and their ratio."""

    name: str
    ours: float
    reference: float
    ratio: float
    target: str
    met: bool
    unit: str = "ms"


def interleaved(*actions: Callable[[], object], rounds: int) -> list[list[float]]:
    """Time actions in turn, A B A B …, so that whatever else the machine does hits all alike."""
    for action in actions:
        action()
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, mine in zip(actions, times, strict=True):
            began = time.perf_counter()
            action()
            mine.append(1e3 * (time.perf_counter() - began))
    return times


def ratio(mine: list[float], reference: list[float]) -> float:
    """Median of the ratios of neighbouring measurements."""
    return statistics.median(a / b for a, b in zip(mine, reference, strict=True))
