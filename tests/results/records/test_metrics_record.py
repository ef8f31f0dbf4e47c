"""Lines of ``metrics.jsonl``: which fields they need, and what is half written or not there."""

import json
from pathlib import Path

import pytest

from nscl.results import FormatError, read_metrics
from nscl.results.records.metrics_record import WAY_OUT, parse_line


def test_a_log_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"cannot read .*missing: No such file"):
        list(read_metrics(tmp_path / "missing"))


EPOCH = {"kind": "epoch", "task": 0, "phase": "train", "steps": 3, "seconds": 1.5}
COMMITTED = sorted((Path(__file__).parents[3] / "results").rglob("metrics.jsonl"))


def test_committed_logs_are_records():
    assert len(COMMITTED) > 90
    kinds = [record["kind"] for path in COMMITTED for record in read_metrics(path)]
    assert set(kinds) == {"epoch", "task"}


def test_kinds_of_newer_versions_and_further_fields_are_passed_on() -> None:
    for record in ({"kind": "later", "x": [1]}, {**EPOCH, "method/pull": 0.5}):
        assert parse_line(json.dumps(record).encode(), place="here") == record


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": 3}, ": kind must be text, got 3"),
        ({"task": -1}, ": task must be greater than or equal to 0, got -1"),
        ({"task": "one"}, ": task must be a whole number, got 'one'"),
        ({"old_losses": None}, ": old_losses must be a list, got None"),
        ({"old_losses": [float("nan")]}, ": old_losses.0 must be a finite number, got nan"),
        ({"old_losses": [float("inf")]}, ": old_losses.0 must be a finite number, got inf"),
        ({"old_losses": [0.1, None]}, ": old_losses.1 must be a number, got None"),
    ],
)
def test_a_wrong_field_is_named_with_its_line_and_the_way_out(
    changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(FormatError) as caught:
        parse_line(json.dumps({**EPOCH, **changes}).encode(), place="log line 3")
    assert str(caught.value) == f"log line 3{reason}; {WAY_OUT}"


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    line = json.dumps(EPOCH)
    (tmp_path / "log").write_text(f"{line}\n{line}")
    assert list(read_metrics(tmp_path / "log")) == [EPOCH]
