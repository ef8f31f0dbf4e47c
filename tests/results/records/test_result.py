"""The result of a run: exact there and back, and nothing wrong gets in."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nscl.errors import NsclError
from nscl.metrics import AccuracyMatrix
from nscl.results import FormatError, Result, write_json


def test_json_round_trip_is_exact(make_result):
    result = make_result()
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@given(st.lists(st.floats(0, 100), min_size=3, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_figures_are_those_of_the_matrix(make_result, values):
    matrix = AccuracyMatrix([values[:1], values[1:]])
    record = make_result(accuracy=matrix).to_dict()
    for name in ("acc", "bwt", "forgetting", "learning_accuracy"):
        assert record[name] == getattr(matrix, name) == getattr(Result.from_dict(record), name)


def test_it_is_read_from_a_file_or_a_run_folder(tmp_path, make_result):
    write_json(tmp_path / "result.json", make_result().to_dict())
    assert Result.read(tmp_path) == Result.read(tmp_path / "result.json") == make_result()


COMMITTED = sorted((Path(__file__).parents[3] / "results").rglob("result.json"))


def test_committed_results_are_read_and_written_byte_for_byte(tmp_path):
    assert len(COMMITTED) > 90
    for path in COMMITTED:
        write_json(tmp_path / "result.json", Result.read(path).to_dict())
        assert (tmp_path / "result.json").read_bytes() == path.read_bytes()


def test_remarks_are_written_where_there_are_any_and_absent_in_older_files(make_result):
    noted = make_result(remarks=("no better than chance",))
    assert noted.to_dict()["remarks"] == ["no better than chance"]
    assert Result.from_dict(noted.to_dict()) == noted
    assert "remarks" not in make_result().to_dict()
    assert Result.from_dict(make_result().to_dict()).remarks == ()


def test_it_cannot_be_changed(make_result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_result().seed = 3


def test_a_newer_schema_says_update(tmp_path, make_result):
    write_json(tmp_path / "result.json", make_result().to_dict() | {"schema": 2, "new": 1})
    with pytest.raises(FormatError, match=r"result\.json was written by a newer nscl \(schema 2"):
        Result.read(tmp_path)


def test_every_missing_and_every_foreign_field_is_named(make_result):
    record = make_result().to_dict()
    for name in set(record) - {"schema"}:
        less = {key: value for key, value in record.items() if key != name}
        if name == "notes":  # the only field with a default
            assert Result.from_dict(less).notes == {}
            continue
        with pytest.raises(FormatError, match=f"lacks {name}; move its folder"):
            Result.from_dict(less)
    with pytest.raises(FormatError, match=r"does not know: colour; move its folder"):
        Result.from_dict(record | {"colour": "blue"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("benchmark", ""),
        ("method", 3),
        ("preset", 3),
        ("seed", -1),
        ("seed", True),
        ("seconds", "12"),
        ("seconds", float("nan")),
        ("seconds_per_task", ["x"]),
        ("seconds_per_step", -0.1),
        ("steps", 1.5),
        ("peak_memory_bytes", -1),
        ("state_bytes", None),
        ("stores", "everything"),
        ("config", []),
        ("notes", None),
        ("accuracy", None),
    ],
)
def test_every_field_has_its_kind(make_result, name, value):
    with pytest.raises(FormatError, match=rf"^the result: {name}[.\d]*:? ") as caught:
        Result.from_dict(make_result().to_dict() | {name: value})
    assert str(caught.value).endswith("move its folder away to run it again")
    assert "\n" not in str(caught.value)


def test_wrong_values_are_refused_when_made_too(make_result):
    with pytest.raises(FormatError, match="stores must be 'nothing', 'parameters' or 'data'"):
        make_result(stores="everything")
    with pytest.raises(FormatError, match="no task was trained"):
        make_result(accuracy=AccuracyMatrix())


def test_a_file_that_contradicts_itself_is_refused(make_result):
    with pytest.raises(FormatError, match=r"acc is 99.0, its accuracy matrix gives 51\.8"):
        Result.from_dict(make_result().to_dict() | {"acc": 99.0})
    with pytest.raises(FormatError, match=r"result: accuracy: R\[0\]\[0\] must be a percentage"):
        Result.from_dict(make_result().to_dict() | {"accuracy": {"rows": [[120.0]]}})


def test_truncated_and_missing_files_are_named(tmp_path, make_result):
    path = tmp_path / "result.json"
    with pytest.raises(NsclError, match=r"result\.json does not exist"):
        Result.read(path)
    write_json(path, make_result().to_dict())
    text = path.read_text()
    for size in (0, 1, len(text) // 2, len(text) - 2):
        path.write_text(text[:size])
        with pytest.raises(FormatError, match=r"result\.json is truncated or not JSON"):
            Result.read(path)
    path.write_text("[]")
    with pytest.raises(FormatError, match="not a JSON object but a list"):
        Result.read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="truncated or not JSON"):
        Result.read(path)
