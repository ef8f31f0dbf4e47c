"""``nscl doctor``: what this machine has, for people and as JSON."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from nscl.cli.app import call

ROOT = Path(__file__).parents[3]


def test_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"]["torch"].startswith("2.")
    assert found["data"]["split-digits-5"] == {"ready": True, "state": "embedded"}
    assert found["nscl"]
    assert "cpu" in found["devices"]


def test_doctor_says_what_to_install_and_to_fetch(
    here: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nscl.cli.commands.doctor._version", lambda name: "")
    assert call(["doctor"]) == 0
    rows = {line.split()[0]: line.rstrip() for line in capsys.readouterr().out.splitlines()}
    assert rows["torch"].endswith("missing: pip install 'nscl[lab]'")
    assert rows["ray"].endswith("not installed (optional: pip install 'nscl[ray]')")
    assert rows["split-digits-5"].endswith("embedded")
    assert rows["split-cifar10-5"].endswith("missing  (nscl data fetch split-cifar10-5)")


def test_every_extra_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].keys() - {"lab"}  # what the command itself needs
    monkeypatch.setattr("nscl.cli.commands.doctor._version", lambda name: None)
    assert call(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert extras == {*re.findall(r"optional: pip install 'nscl\[(\w+)\]'", shown)}
    assert call(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["optional"]["tensorboard"] is None


def test_it_looks_for_all_that_the_laboratory_needs(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    assert call(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["packages"]
    assert set(found) == {re.split(r"[^\w-]", text)[0] for text in needed}
    assert all(found.values())
