"""The model in docs/laboratory.md, taken out of the document and run as its reader would."""

import json
import re
import sys
from pathlib import Path

import pytest

from nscl.cli import app

DOCUMENT = Path(__file__).parents[1] / "docs" / "laboratory.md"


def section() -> str:
    return DOCUMENT.read_text().partition("## A model of your own")[2].partition("\n## ")[0]


def test_the_example_is_ten_lines_and_its_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", section(), re.DOTALL | re.MULTILINE)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    (command,) = re.findall(r"^\$ nscl (.*)$", section(), re.MULTILINE)
    (tmp_path / "mymodel.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mymodel", raising=False)
    sizes = ["--data.first", "2", "--epochs", "1", "--threads", "1", "--quiet"]
    assert app.call([*command.split(), *sizes]) == 0
    (written,) = tmp_path.glob("runs/*/config.json")
    assert json.loads(written.read_text())["config"]["model"]["name"] == "mymodel:factory"
    assert json.loads(written.read_text())["config"]["model"]["width"] == 64


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_model_that_is_not_there_is_one_line(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.call([command, "split-digits-5", "--model", "nowhere:factory"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("nscl: cannot import 'nowhere'")
    assert errors.count("\n") == 1
