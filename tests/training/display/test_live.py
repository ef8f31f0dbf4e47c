"""The live view: bars, the matrix as it grows, figures of the method, time left."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from nscl.methods.base import Phase
from nscl.training.checkpoint import Place
from nscl.training.config.schema import Optim, RunConfig
from nscl.training.display.live import Live
from nscl.training.display.tally import Tally

CONFIG = RunConfig(benchmark="split-digits-5", method="adam-nscl", optim=Optim(epochs=4))


class Stream:
    note = ""

    def __len__(self) -> int:
        return 5


@pytest.fixture
def live() -> Any:
    view: Any = Live()
    view.console = Console(file=io.StringIO(), width=120)
    view.progress.live.console = view.console
    view.start(CONFIG, Stream(), Place(1), Path("runs/x"))
    yield view
    view.stop()


def test_bars_follow_the_steps(live: Any) -> None:
    live.step(Place(1, 0, 2), Phase("train"), 4, Tally(loss=8.0, hits=3, seen=4, steps=5), 10)
    overall, current = live.progress.tasks
    assert overall.completed == pytest.approx(1 + (2 + 0.5) / 4)
    assert (current.description, current.completed) == ("task 2 train 3/4", 0.5)
    assert current.fields["note"].startswith("loss 2.000  accuracy 75.0 %")


def test_time_left_counts_only_what_this_process_has_done(live: Any) -> None:
    assert live._left(1.01) == ""
    live.began -= 60  # seconds
    assert live._left(2.0) == "about 3.0 min left"


def test_known_figures_of_the_method_are_shown(live: Any) -> None:
    live.epoch({"method/free": 0.5, "method/other": 3.0})
    assert live.figures == "50% free"


def test_the_matrix_grows_and_the_result_closes_the_view(live: Any) -> None:
    live.task({"accuracies": [90.0]})
    live.task({"accuracies": [80.0, 95.5]})
    figures = {"acc": 87.75, "bwt": -10.0, "forgetting": 10.0, "seconds": 3.0}
    live.finish(SimpleNamespace(**figures, remarks=("one class only in 1 of 2 tasks (2)",)))
    text = live.console.file.getvalue()
    assert "adam-nscl on split-digits-5" in text
    assert "95.5" in text
    assert "ACC 87.75 %  BWT -10.00" in text
    assert "remark: one class only in 1 of 2 tasks (2)" in text
    assert not live.live.is_started


def test_a_remark_on_a_task_is_shown_once_while_the_run_goes_on(live: Any) -> None:
    for task in range(2):
        live.task({"accuracies": [90.0] * (task + 1), "remarks": ["moved in [1] tasks"]})
    assert live.console.file.getvalue().count("remark: moved in [1] tasks") == 1
