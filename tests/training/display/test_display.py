"""Plain lines and JSON of a run, and which display is chosen when."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nscl.training.checkpoint import Place
from nscl.training.config.build import build_config
from nscl.training.config.schema import RunConfig
from nscl.training.display.display import Json, Lines, Quiet, choose_display
from nscl.training.display.live import Live

CONFIG = RunConfig(benchmark="split-digits-5", method="ewc")
EPOCH = {"kind": "epoch", "task": 0, "phase": "train", "epoch": 1, "loss": 0.5, "accuracy": 80.0}
TASK = {"kind": "task", "task": 0, "accuracies": [91.25], "acc": 91.25, "bwt": 0.0, "seconds": 2.0}


class Stream:
    note = "a part of the pictures"

    def __len__(self) -> int:
        return 5


class Plain(Stream):
    note = ""


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines: Any = Lines()
    lines.start(CONFIG, Stream(), Place(), Path("runs/x"))
    lines.epoch({**EPOCH, "method/free": 0.25})
    lines.task(TASK)
    assert capsys.readouterr().out.splitlines() == [
        "running ewc on split-digits-5, 5 tasks, in runs/x",
        "note: a part of the pictures",
        "task 1/5  train  epoch 2  loss 0.5000  accuracy 80.0 %  free 0.25",
        "after task 1: 91.2   ACC 91.25  BWT +0.00  (2.0 s)",
    ]
    lines.start(CONFIG, Stream(), Place(0, 0, 1), Path("runs/x"))
    assert capsys.readouterr().out.startswith("resuming ewc")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"method": "finetune"}, []),
        (
            {"method": "adam-nscl"},  # preset quick
            ["note: options unlike the defaults of adam-nscl: a = 1000 (default 10)"],
        ),
        ({"method": "adam-nscl", "options": {"a": 10}}, []),
        (
            {"method": "nscl"},
            [
                "note: nscl.Memory(model) alone has Penalty(5); this method adds distillation of "
                "old answers (kd 3) and a warm-up of new heads (0.25 of the epochs), and has "
                "strength 1, chosen together with them"
            ],
        ),
        (
            {"method": "nscl", "options": {"strength": 2.5}},
            [
                "note: options unlike the defaults of nscl: strength = 2.5 (default 1)",
                "note: nscl.Memory(model) alone has Penalty(5); this method adds distillation of "
                "old answers (kd 3) and a warm-up of new heads (0.25 of the epochs), and has "
                "strength 2.5",
            ],
        ),
    ],
)
def test_the_beginning_of_a_run_says_what_is_unlike_the_defaults(
    settings: Any, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines: Any = Lines()
    lines.start(build_config("split-digits-5", settings), Plain(), Place(), Path("runs/x"))
    assert capsys.readouterr().out.splitlines()[1:] == expected


def test_the_live_view_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    display: Any = Live()
    display.start(build_config("split-digits-5", {}), Plain(), Place(), Path("runs/x"))
    display.stop()
    shown = " ".join(capsys.readouterr().out.split())
    assert "options unlike the defaults of adam-nscl: a = 1000 (default 10)" in shown


def test_a_remark_on_a_task_is_printed_when_it_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    lines: Any = Lines()
    lines.task({**TASK, "remarks": []})
    lines.task({**TASK, "task": 1, "remarks": ["statistics moved"]})
    lines.task({**TASK, "task": 2, "remarks": ["statistics moved"]})
    assert capsys.readouterr().out.splitlines()[2:] == [
        "remark: statistics moved",
        "after task 3: 91.2   ACC 91.25  BWT +0.00  (2.0 s)",
    ]


def test_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    display: Any = Json()
    display.start(CONFIG, Stream(), Place(2), Path("runs/x"))
    display.epoch(EPOCH)
    display.finish(SimpleNamespace(to_dict=lambda: {"acc": 91.25}))
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records == [
        {"kind": "start", "run": "runs/x", "task": 2, "tasks": 5},
        EPOCH,
        {"kind": "result", "acc": 91.25},
    ]


def test_the_live_view_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(**options: bool) -> type:
        return type(choose_display(**{"quiet": False, "as_json": False, **options}))

    for terminal, kind in ((False, Lines), (True, Live)):
        monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda t=terminal: t))
        assert chosen() is kind
        assert chosen(quiet=True) is Quiet
        assert chosen(quiet=True, as_json=True) is Json
