"""The method in docs/own-method.md, taken out of the document and run as its reader would."""

import inspect
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from nscl.cli import app
from nscl.methods import Lab, Method
from tests.runs import nscl

DOCUMENT = Path(__file__).parents[1] / "docs" / "own-method.md"
MINE = "stayclose:StayClose"


def run_command(method: str = MINE, *, tasks: int = 2, epochs: int = 3) -> list[str]:
    sizes = ["--data.first", str(tasks), "--optim.epochs", str(epochs)]
    return ["run", "split-digits-5", "--method", method, *sizes, "--threads", "1"]


def code() -> str:
    (block,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    return str(block)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stayclose.py").write_text(code())
    return tmp_path


@pytest.fixture
def working(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This very process works in the folder, and knows no method of an earlier test."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "stayclose", raising=False)
    return folder


def result(folder: Path, out: str = "runs") -> dict[str, Any]:
    (found,) = (folder / out).glob("*/result.json")
    content: dict[str, Any] = json.loads(found.read_text())
    return content


def test_the_example_is_short() -> None:
    lines = [line for line in code().splitlines() if line.strip()]
    assert 30 <= len(lines) <= 50


def test_it_runs_forgets_less_than_fine_tuning_and_shows_its_penalty(working: Path) -> None:
    for method in (MINE, "finetune"):
        assert app.call([*run_command(method, tasks=3), "--quiet", "--out", method[:4]]) == 0
    mine, plain = result(working, "stay"), result(working, "fine")
    assert mine["bwt"] > plain["bwt"] + 1
    assert mine["state_bytes"] > 0
    (log,) = (working / "stay").glob("*/metrics.jsonl")
    epochs = [r for r in map(json.loads, log.read_text().splitlines()) if r["kind"] == "epoch"]
    assert epochs[0]["method/penalty"] == 0 < epochs[-1]["method/penalty"]


def test_it_resumes_bit_for_bit(working: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.call([*run_command(), "--quiet", "--out", "whole"]) == 0
    process = nscl(*run_command(), cwd=working)
    assert process.stdout is not None
    for line in process.stdout:
        if "task 2/2" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)
    assert process.returncode == 143
    (run,) = (working / "runs").iterdir()
    assert app.call(["resume", f"runs/{run.name}"]) == 0
    assert "resuming" in capsys.readouterr().out
    assert result(working)["accuracy"] == result(working, "whole")["accuracy"]


def test_the_installed_command_finds_it_in_the_folder_one_works_in(
    working: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python -m`` puts that folder on the path, a script does not: both commands must."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert app.call([*run_command(tasks=1, epochs=1), "--quiet"]) == 0
    (made,) = (working / "runs").iterdir()
    (made / "result.json").unlink()
    monkeypatch.delitem(sys.modules, "stayclose")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert app.call(["resume", str(made), "--quiet"]) == 0
    assert (made / "result.json").exists()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("staycloser:StayClose", "did you mean 'stayclose'?"),
        ("stayclose.StayClose", "write your own as 'stayclose:StayClose'"),
    ],
)
def test_what_is_missing_is_named_in_one_line(
    method: str,
    message: str,
    working: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.call(["run", "split-digits-5", "--method", method]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.startswith("nscl: ")
    assert errors.count("\n") == 1
    assert not (working / "runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method.strenght", "1"), "did you mean 'strength'?"),
        (("--method.strength", "-1"), "greater than or equal to 0"),
    ],
)
def test_an_option_of_ones_own_is_checked(
    options: tuple[str, str],
    message: str,
    working: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.call([*run_command(), *options]) == 2
    assert message in capsys.readouterr().err


def test_the_document_names_every_hook_and_nothing_else() -> None:
    text = DOCUMENT.read_text()
    table = "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"`(\w+)`", table))
    hooks = {name for name, _ in inspect.getmembers(Method, inspect.isroutine)}
    assert listed == {name for name in hooks if not name.startswith("_")}
    for name in ("scenarios", "tuning", *Lab.__dataclass_fields__, "tasks"):
        assert f"`{name}" in text, name


def test_what_it_stores_is_what_its_class_says(working: Path) -> None:
    options = "    options_type = StayCloseOptions\n"
    mine = code().replace(options, f'{options}    stores = "data"\n')
    (working / "stayclose.py").write_text(mine)
    assert app.call([*run_command(tasks=1, epochs=1), "--quiet"]) == 0
    assert result(working)["stores"] == "data"
