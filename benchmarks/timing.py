"""Fair races on a machine that other people use too.

Contestants take turns (A B, B A, A B, …), so that a busy minute hits all of them, and the best of
many turns counts: the time of an undisturbed computation. Medians are recorded too.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Clock = Literal["wall", "cpu"]

_CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Times:
    """Seconds of all turns of one contestant."""

    turns: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least disturbed turn."""
        return min(self.turns)

    @property
    def median(self) -> float:
        """The typical turn."""
        return statistics.median(self.turns)

    def each(self, count: int) -> "Times":
        """Seconds of one thing, where a turn does ``count`` of them."""
        return Times(tuple(seconds / count for seconds in self.turns))


@dataclass(frozen=True)
class Stopwatch:
    """How long races take and what time means in them.

    ``cpu`` counts processor time: with one thread it hardly depends on what else is running.
    """

    seconds: float = 30.0
    clock: Clock = "wall"

    def race(
        self,
        contestants: Mapping[str, Callable[[], object]],
        *,
        share: float = 1.0,
        least: int = 3,
        most: int = 50,
        warm: bool = True,
    ) -> dict[str, Times]:
        """Let contestants take turns until a share of the seconds, or ``most`` rounds, is over.

        ``warm`` gives everyone a turn before that does not count.
        """
        for contestant in contestants.values() if warm else ():
            contestant()
        turns: dict[str, list[float]] = {name: [] for name in contestants}
        end = time.perf_counter() + share * self.seconds
        with _no_collection():
            for number in range(most):
                for name in _in_turn(list(contestants), number):
                    turns[name].append(self.once(contestants[name]))
                if number + 1 >= least and time.perf_counter() > end:
                    break
        return {name: Times(tuple(taken)) for name, taken in turns.items()}

    def once(self, contestant: Callable[[], object]) -> float:
        """Seconds of one turn."""
        now = _CLOCKS[self.clock]
        start = now()
        contestant()
        return now() - start


def _in_turn(names: list[str], number: int) -> list[str]:
    return names if number % 2 == 0 else names[::-1]


@contextmanager
def _no_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
