"""The record of a tuning and its choice."""

from pathlib import Path

import pytest

from nscl.engines.tuning.tuned_file import TrialRecord, Tuned, best_trial, known_trials
from nscl.errors import NsclError


def trial(run: str, acc: float | None, bwt: float | None = -1.0) -> TrialRecord:
    return TrialRecord(run, {"a": 1.0}, acc, bwt if acc is not None else None, 1.0)


def test_best_acc_then_bwt_then_first() -> None:
    trials = [trial("w", 70.0), trial("x", 80.0, -2.0), trial("y", 80.0), trial("z", 80.0)]
    assert best_trial([trial("broken", None), *trials]) == trials[2]
    assert best_trial([trial("broken", None)]) is None


def test_a_record_of_other_trials_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "gpm.json"
    record = Tuned("b", "cpu", "gpm", {"options": {"a": 1.0}}, (trial("r1", 70.0),))
    record.write(path)
    assert Tuned.read(path) == record
    assert set(known_trials(path, {"r1", "r2"}, force=False)) == {"r1"}
    with pytest.raises(NsclError, match="--force"):
        known_trials(path, {"r2"}, force=False)
    assert known_trials(path, {"r2"}, force=True) == {}
    path.write_text('{"schema": 1, "trials": [{"nothing": 1}]}')
    with pytest.raises(NsclError, match="not the record of a tuning"):
        Tuned.read(path)
