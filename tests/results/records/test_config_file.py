"""The configuration of a run on disk: incomplete or edited, it is refused."""

import json
from pathlib import Path

import pytest

from nscl.results import (
    ConfigFile,
    FormatError,
    write_json,
)


def test_an_edited_configuration_is_noticed(make_run):
    run = make_run()
    run.config_path.write_text(run.config_path.read_text().replace('"epochs": 2', '"epochs": 9'))
    with pytest.raises(FormatError, match="was changed after the run began"):
        make_run()


@pytest.mark.parametrize("missing", ["benchmark", "method", "seed", "config", "environment"])
def test_a_config_file_without_a_part_is_refused(make_run, missing):
    run = make_run()
    record = json.loads(run.config_path.read_text())
    del record[missing]
    run.config_path.write_text(json.dumps(record))
    with pytest.raises(FormatError, match=rf"config\.json is incomplete: it lacks {missing};"):
        run.config()


COMMITTED = sorted((Path(__file__).parents[3] / "results").rglob("config.json"))


def test_committed_configurations_are_read_and_written_byte_for_byte(tmp_path):
    assert len(COMMITTED) > 90
    for path in COMMITTED:
        write_json(tmp_path / "config.json", ConfigFile.read(path).to_dict())
        assert (tmp_path / "config.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("benchmark", 3, "must be text, got 3"),
        ("seed", True, "must be a whole number, got True"),
        ("seed", -1, "must be greater than or equal to 0, got -1"),
        ("config", [], "must be a table of names and values, got []"),
        ("schema", 2, "was written by a newer nscl"),
    ],
)
def test_a_wrong_value_is_named(make_run, name, value, rule):
    run = make_run()
    record = json.loads(run.config_path.read_text())
    run.config_path.write_text(json.dumps(record | {name: value}))
    with pytest.raises(FormatError) as caught:
        run.config()
    assert str(caught.value).startswith(str(run.config_path))
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)
