"""Races are fair: everybody takes turns, and the clock is the one asked for."""

import time

from benchmarks.timing import Stopwatch, Times


def test_contestants_take_turns_from_both_ends() -> None:
    order: list[str] = []
    runners = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = Stopwatch(seconds=0).race(runners, least=3, most=5)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert all(len(taken.turns) == 3 for taken in times.values())


def test_a_race_without_a_warm_up() -> None:
    order: list[str] = []
    Stopwatch(seconds=0).race({"a": lambda: order.append("a")}, least=1, warm=False)
    assert order == ["a"]


def test_there_is_a_last_round() -> None:
    assert len(Stopwatch(seconds=60).race({"a": int}, most=4)["a"].turns) == 4


def test_sleeping_costs_time_but_no_processor() -> None:
    def doze() -> None:
        time.sleep(0.05)

    assert Stopwatch(clock="wall").once(doze) >= 0.05
    assert Stopwatch(clock="cpu").once(doze) < 0.04


def test_best_and_median() -> None:
    taken = Times((3.0, 1.0, 10.0))
    assert (taken.best, taken.median) == (1.0, 3.0)
