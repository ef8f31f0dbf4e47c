"""The queue of runs: a run that another process has locked waits."""

import time
from pathlib import Path

import pytest

from nscl.engines.workers import run_queue
from tests.engines.jobs import job


def test_a_lock_whose_holder_was_killed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue, "PATIENCE", 0.3)
    made = job(tmp_path)
    made.directory.path.mkdir(parents=True)
    made.directory.lock_path.touch()
    queue = run_queue.RunQueue([made])
    assert queue.next() is made
    queue.put_back(made)
    assert queue.next() is None
    time.sleep(0.3)
    assert queue.next() is made
