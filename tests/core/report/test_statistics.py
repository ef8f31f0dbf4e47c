"""Shifts of running statistics: when they are too far, and which remark follows."""

import pytest

from nscl.core.report import Report, Shift
from nscl.core.report.statistics import LARGE_SHIFT, describe_large_shifts, remark_on_shifts

BELOW, BEYOND = 0.99 * LARGE_SHIFT, 1.01 * LARGE_SHIFT


def test_only_shifts_beyond_the_limit_are_described() -> None:
    assert list(describe_large_shifts([Shift("a", BELOW), Shift("b", 0.0)])) == []
    (line,) = describe_large_shifts([Shift("a", BEYOND), Shift("b", 4.4), Shift("c", BELOW)])
    assert line.startswith("running statistics of b moved by 4.4 σ since the last remember (more")
    assert f"than {LARGE_SHIFT:g} σ in 2 of 3 norm layers)" in line
    assert "statistics='freeze'" in line
    (alone,) = describe_large_shifts([Shift("b", 4.4)])
    assert "norm layers" not in alone


def test_a_report_has_it_among_its_notes() -> None:
    far, near = (Report((), (Shift("bn", s),), ("Adam",), 1, {}) for s in (BEYOND, BELOW))
    assert any("running statistics of bn moved" in note for note in far.notes)
    assert "statistics='freeze'" in str(far)
    assert far.to_dict()["notes"] == list(far.notes)
    assert near.notes == ()


@pytest.mark.parametrize("shifts", [[], [None, None], [None, BELOW, float("nan")]])
def test_runs_without_a_far_shift_have_no_remark(shifts: list[float | None]) -> None:
    assert remark_on_shifts(shifts) == ()


def test_a_remark_counts_tasks_from_one() -> None:
    (line,) = remark_on_shifts([None, BEYOND, BELOW, 9.0])
    assert f"more than {LARGE_SHIFT:g} σ in 2 of 4 tasks (2, 4)" in line
    assert "--bn-stats frozen" in line
