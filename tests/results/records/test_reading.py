"""JSON objects from damaged files: every error names the file and the way out, in one line."""

from pathlib import Path

import pytest

from nscl.results import FormatError
from nscl.results.records.reading import check_schema, read_json


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is truncated or not JSON: "),
        (b'{"a": 1', "is truncated or not JSON: "),
        (b"\xff\xfe\x00", "is truncated or not JSON: "),
        (b"[]", "is not a JSON object but a list"),
        (b"null", "is not a JSON object but a NoneType"),
    ],
)
def test_what_is_no_object_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        read_json(path, way_out="make it again")
    assert str(caught.value).startswith(f"{path} {reason}")
    assert str(caught.value).endswith("; make it again")
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nothing does not exist"):
        read_json(tmp_path / "nothing")
    with pytest.raises(FormatError, match=r"cannot read .*: Is a directory"):
        read_json(tmp_path)


@pytest.mark.parametrize("schema", [None, "1", 0, True, 1.0])
def test_a_record_of_others_is_refused(schema: object) -> None:
    with pytest.raises(FormatError, match="x was not written by nscl: its schema is "):
        check_schema({"schema": schema}, known=2, path="x")


def test_a_newer_record_says_update() -> None:
    check_schema({"schema": 2}, known=2, path="x")
    with pytest.raises(FormatError, match=r"newer nscl \(schema 3, .* up to 2\): update nscl"):
        check_schema({"schema": 3}, known=2, path="x")
