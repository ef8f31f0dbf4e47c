"""W&B in its real offline mode: the files that ``wandb sync`` would send, read back."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb", reason="pip install 'nscl[wandb]'")

from wandb.proto import wandb_internal_pb2 as messages

from nscl.cli.app import call
from nscl.results import RunDirectory, read_metrics
from nscl.training.tracking.numbers import numbers
from tests.runs import nscl

COMMAND = ("split-digits-5", "--data.first", "2", "--epochs", "3", "--batch-size", "8",
           "--threads", "1", "--method", "finetune", "--track", "wandb")  # fmt: skip
HEADER, BLOCK = 7, 32768  # W&B's files are LevelDB logs


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    # Set by W&B itself once it runs in this process: a process of ours has its own.
    monkeypatch.delenv("WANDB_SERVICE", raising=False)


def parts(path: Path) -> Iterator[Any]:
    """The records of a file; a long one is cut at the ends of blocks."""
    data, place, text = path.read_bytes(), HEADER, b""
    while place + HEADER <= len(data):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        text += data[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield messages.Record.FromString(text)
            text = b""


def offline_file(folder: Path) -> Path:
    (found,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    return found


def history(folder: Path) -> list[dict[str, float]]:
    """Rows in order, without what W&B adds."""
    rows = []
    for part in parts(offline_file(folder)):
        if part.WhichOneof("record_type") == "history":
            items = {"/".join(i.nested_key) or i.key: i.value_json for i in part.history.item}
            row = {name: json.loads(text) for name, text in items.items()}
            assert row["_step"] == len(rows)
            rows.append({name: value for name, value in row.items() if name[0] != "_"})
    return rows


def recorded(folder: Path) -> list[dict[str, float]]:
    rows, steps = [], 0
    for record in read_metrics(folder / "metrics.jsonl"):
        steps = record.get("steps", steps)
        rows.append({"steps": steps, **numbers(record)})
    return rows


def described(folder: Path) -> Any:
    kinds = {part.WhichOneof("record_type"): part for part in parts(offline_file(folder))}
    return kinds["run"].run


def test_the_file_has_what_the_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["run", *COMMAND, "--eval-each-epoch", "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
    (folder,) = (tmp_path / "runs").iterdir()
    assert history(folder) == recorded(folder)
    assert len(history(folder)) == 8
    found = described(folder)
    assert (found.project, found.display_name) == ("nscl", folder.name)
    config = {entry.key: json.loads(entry.value_json) for entry in found.config.update}
    assert {name: config[name] for name in RunDirectory(folder).config()} == RunDirectory(
        folder
    ).config()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_after_a_stop_and_resume_it_is_one_run_with_every_row_once(
    number: signal.Signals, tmp_path: Path
) -> None:
    process = nscl("run", *COMMAND, cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 2" in line:
            break
    process.send_signal(number)
    process.communicate(timeout=240)
    (folder,) = (tmp_path / "runs").iterdir()
    assert not RunDirectory(folder).is_finished
    before = offline_file(folder).stem  # the file itself may hold nothing yet
    again = nscl("resume", str(folder), cwd=tmp_path)
    _, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert offline_file(folder).stem == before == f"run-{described(folder).run_id}"
    assert history(folder) == recorded(folder)
    assert len(history(folder)) == 8


def test_without_a_key_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("HOME", str(tmp_path))  # no key in it
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # should it ask all the same
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    process = nscl("run", *COMMAND, cwd=tmp_path, stdin=-3)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 2
    (line,) = errors.splitlines()
    assert line.startswith("nscl: --track wandb: ")
    assert "WANDB_MODE=offline" in line
