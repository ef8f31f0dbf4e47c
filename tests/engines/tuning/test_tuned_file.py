"""The record of a tuning and its choice."""

import json
from pathlib import Path
from typing import Any

import pytest

from nscl.engines.tuning.search import Point, Score, choose
from nscl.engines.tuning.tuned_file import TrialRecord, Tuned, known_trials
from nscl.errors import NsclError

SHIPPED = Path(__file__).parents[3] / "experiments/tuned"


def trial(run: str, acc: float | None, bwt: float | None = -1.0) -> TrialRecord:
    bwt = bwt if acc is not None else None
    return TrialRecord(run=run, point={"a": 1.0}, acc=acc, bwt=bwt, seconds=1.0)


def tuned(*trials: TrialRecord) -> Tuned:
    settings = {"options": {"a": 1.0}}
    return Tuned(benchmark="b", preset="cpu", method="gpm", settings=settings, trials=trials)


def test_the_choice_is_the_trial_with_the_chosen_values() -> None:
    first, other = trial("r1", 70.0), TrialRecord(run="r2", point={"a": 2.0}, acc=90.0, bwt=0.0)
    again = TrialRecord(run="r3", point={"a": 1.0}, acc=71.0, bwt=0.0, seed=1)
    record = tuned(other, first, again)
    assert record.choice == first
    assert record.acc == 70.5
    with pytest.raises(NsclError, match="has the chosen values"):
        _ = tuned(other).choice


def test_a_record_of_other_trials_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "gpm.json"
    record = tuned(trial("r1", 70.0))
    record.write(path)
    assert Tuned.read(path) == record
    assert known_trials(path, ["a"], force=False) == [trial("r1", 70.0)]
    with pytest.raises(NsclError, match="--force"):
        known_trials(path, ["a", "optim.later_lr"], force=False)
    assert known_trials(path, ["b"], force=True) == []


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("*.json")), ids=lambda path: path.stem)
def test_shipped_records_name_a_choice(path: Path) -> None:
    record = Tuned.read(path)
    if not any(t.seed for t in record.trials):  # the first edition: one seed, the best ACC
        assert record.acc == max(t.acc for t in record.trials if t.acc is not None)
        return
    scores: dict[Point, list[Score]] = {}
    for t in record.trials:
        assert t.acc is not None
        assert t.bwt is not None
        scores.setdefault(tuple(t.point.values()), []).append(Score(t.acc, t.bwt))
    assert tuple(record.choice.point.values()) == choose(scores)


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("*.json")), ids=lambda path: path.stem)
def test_shipped_records_are_read_and_written_byte_for_byte(path: Path, tmp_path: Path) -> None:
    Tuned.read(path).write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": 3}, "preset must be text, got 3"),
        ({"trials": [{"nothing": 1}]}, "is incomplete: it lacks point, run"),
        ({"trials": [{"run": "r", "point": {"a": "x"}}]}, "a.*got 'x'"),
        ({"trials": [{"run": "r", "point": {}, "acc": "good"}]}, "acc must be a number"),
        ({"seen": 1}, "fields that nscl does not know: seen"),
    ],
)
def test_a_damaged_record_is_named_in_one_line(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "gpm.json"
    tuned(trial("r1", 70.0)).write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(NsclError, match=message) as found:
        Tuned.read(path)
    assert str(found.value).startswith(str(path))
    assert "--force" in str(found.value)
    assert "\n" not in str(found.value)
