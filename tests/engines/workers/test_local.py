"""Runs as processes of this machine: their threads and their last error."""

from pathlib import Path

import pytest

from nscl.engines.plan import (
    RunPlan,
    Variant,
)
from nscl.engines.workers.local import last_error


def test_last_words_are_the_errors_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = "nscl: an older attempt\n"
    log.write_text(first + "task 1\nnscl: the reason\nnoise after it\n")
    assert last_error(log, offset=len(first)) == "the reason"
    log.write_text("Traceback ...\nValueError: bad\n\n")
    assert last_error(log) == "ValueError: bad"
    log.write_text("")
    assert last_error(log) == "it ended without a message"


def test_threads_are_divided_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nscl.engines.workers.local.available_cores", lambda: 8)
    rows = (Variant("x", "finetune"),)

    def threads(side_by_side: int | None, **given: object) -> int | None:
        plan = RunPlan("split-cifar10-5", rows, (0,), {"preset": "paper", **given})
        return plan.jobs(side_by_side=side_by_side)[0].config.threads

    assert [threads(n) for n in (1, 2, 3, 8, 20, None)] == [8, 4, 2, 1, 1, 1]
    assert threads(2, threads=7) == 7
    assert threads(1, preset="quick") == 1
