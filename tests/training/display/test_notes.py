"""What a run says before it begins: options unlike the defaults, and beside the library's."""

from pathlib import Path
from typing import Any

import pytest

from nscl.training.checkpoint import Place
from nscl.training.config.build import build_config
from nscl.training.display.display import Lines
from nscl.training.display.live import Live


class Plain:
    note = ""

    def __len__(self) -> int:
        return 5


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
                "note: nscl.Memory(model) alone has Penalty(5), and holds the statistics of batch "
                "norm, which --bn-stats decides here; this method adds distillation of "
                "old answers (kd 3) and a warm-up of new heads (0.25 of the epochs), and has "
                "strength 1, chosen together with them"
            ],
        ),
        (
            {"method": "nscl", "options": {"strength": 2.5}},
            [
                "note: options unlike the defaults of nscl: strength = 2.5 (default 1)",
                "note: nscl.Memory(model) alone has Penalty(5), and holds the statistics of batch "
                "norm, which --bn-stats decides here; this method adds distillation of "
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
