"""``nscl run``: what it prints, what it takes, and one line for what the user can fix."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from nscl.cli.app import call
from tests.cli.calling import QUICK, check_refused, is_one_line


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("split-digits-5", "--method", "adm-nscl"), "did you mean 'adam-nscl'?"),
        (("split-digit-5",), "did you mean 'split-digits-5'?"),
        (("split-digits-5", "--optim.lrr", "1"), "Did you mean --optim.lr?"),
        (("split-digits-5", "--method.b", "1"), "there is no option 'method.b'"),
        (
            ("split-digits-5", "--method.stats-augment", "so"),
            "'method.stats_augment': must be true or false, not 'so'",
        ),
        (("split-digits-5", "--method.stats-augment=a-b"), "must be true or false, not 'a-b'"),
        (("split-digits-5", "--preset", "nah"), "option --preset: must be 'paper', "),
        (("split-digits-5", "--optim.lr", "abc"), "option --optim.lr: must be a number, not"),
        (("split-digits-5", "--optim.milestones", "x"), "option --optim.milestones: must be"),
        (("split-digits-5", "--lr=inf"), "option --optim.lr: must be a finite number, not"),
        (("split-digits-5", "--method.a=inf"), "'method.a': must be a finite number, not"),
        (("split-digits-5", "--eval-each-epoch=so"), "must be true or false, not 'so'"),
        (("split-digits-5", "--lr", "1", "--optim.lr", "2"), "specified multiple times"),
        (("split-digits-5", "--bn-stats", "x"), "'per_task', not 'x'\n"),
        (("split-digits-5", "--device", "tpu"), "option --device: device must be auto"),
        (("split-digits-5", "--method", "finetune", "--method.a", "1"), "has no options"),
        (("split-digits-5", "--data.tasks", "3"), "choose a number of tasks from 1, 2, 5"),
        (("split-cifar100-10", "--data-dir", "empty"), "nscl data fetch split-cifar100-10"),
        (("folder:none", "--data.tasks", "2"), "none"),
        (("text:none", "--data.tasks", "2"), "none is not a folder with train.csv"),
        (("clinc150-10", "--data-dir", "empty"), "nscl data fetch clinc150-10"),
        (("clinc150-10", "--data.tokenizer", "hf:none"), "none is not a folder; name a"),
        (("clinc150-10", "--method", "gd-wild"), "needs pictures, and clinc150-10 has texts"),
        (("split-digits-5", "--model.name", "resnet81"), "resnet18"),
        (("split-digits-5", "--device", "cuda"), "--device auto"),
    ],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(("run", *args), message, here, capsys)


def test_a_loss_that_grows_beyond_all_numbers_is_one_line_too(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "split-digits-5", *QUICK, "--quiet", "--optim.lr", "1e30"]) == 2
    is_one_line(capsys.readouterr().err, "lower the learning rate")


def test_json_is_a_record_per_line_and_the_last_is_the_result(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "split-digits-5", *QUICK, "--json", "--method", "finetune"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["kind"] for r in records] == ["start", "epoch", "task", "epoch", "task", "result"]
    assert records[-1] | {"kind": 0} == json.loads(
        (here / records[0]["run"] / "result.json").read_text()
    ) | {"kind": 0}


def test_settings_that_are_typed_often_have_short_names(tmp_path: Path) -> None:
    shared = ("--data.first", "1", "--threads", "1", "--quiet", "--method", "finetune")
    short = ("--tasks", "5", "--order", "random", "--epochs", "1", "--lr=0.02", "--batch-size",
             "8", "--model", "convnet", "--width", "4")  # fmt: skip
    full = ("--data.tasks", "5", "--data.order", "random", "--optim.epochs", "1",
            "--optim.lr", "0.02", "--optim.batch-size", "8", "--model.name=convnet",
            "--model.width", "4")  # fmt: skip
    assert call(["run", "split-digits-5", *short, *shared, "--out", str(tmp_path)]) == 0
    (run,) = tmp_path.iterdir()
    assert call(["run", "split-digits-5", *full, *shared, "--out", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == [run]


def test_a_file_has_the_same_names_and_the_command_line_wins(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.toml").write_text('method = "finetune"\noptim.epochs = 7\noptim.lr = 0.02\n')
    given = ("--config", "mine.toml", "--data.first", "1", "--epochs", "1", "--threads", "1")
    assert call(["run", "split-digits-5", *given]) == 0
    shown = capsys.readouterr().out.splitlines()[-1]
    run = here / shown.removeprefix("result: ")
    settings = json.loads((run / "config.json").read_text())["config"]
    assert (settings["method"], settings["optim"]["epochs"]) == ("finetune", 1)
    assert settings["optim"]["lr"] == 0.02


def test_a_terminal_gets_a_live_picture(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nscl", "run", "split-digits-5", *QUICK],
        cwd=tmp_path,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    assert process.wait(60) == 0
    text = seen.decode(errors="replace")
    assert "all tasks" in text
    assert "accuracy on each task" in text
    assert "ACC" in text
