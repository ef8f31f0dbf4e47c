"""The figures of a run survive a checkpoint; only the first rank writes files."""

from pathlib import Path

import pytest
import torch

from nscl.metrics import AccuracyMatrix
from nscl.results import RunDirectory, read_metrics
from nscl.training.checkpoint import Place
from nscl.training.display.tally import Tally
from nscl.training.process.device import Ranks
from nscl.training.progress import Journal, RunFigures
from nscl.training.setup import Setup
from tests.runs import small

EPOCH = {"kind": "epoch", "task": 0, "phase": "train", "epoch": 0, "steps": 3, "seconds": 0.5}


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.build(small("finetune", tmp_path), Ranks())


def test_progress_survives_a_checkpoint() -> None:
    matrix = AccuracyMatrix().with_row([90.0])
    before = RunFigures(Place(1), matrix, [2.5], steps=7, step_seconds=0.5)
    after = RunFigures.from_state(Place(1), before.to_state())
    assert (after.matrix, after.seconds_per_task) == (matrix, [2.5])
    assert (after.steps, after.step_seconds) == (7, 0.5)
    assert after.task_seconds() >= before.to_state()["spent"] - 1


def test_shifts_survive_a_checkpoint_and_are_unknown_in_an_older_one() -> None:
    before = RunFigures(Place(2), seconds_per_task=[1.0, 2.0], shifts=[None, 4.4], shift=0.5)
    saved = before.to_state()
    after = RunFigures.from_state(Place(2), saved)
    assert (after.shifts, after.shift) == ([None, 4.4], 0.5)
    older = {name: v for name, v in saved.items() if name not in ("shifts", "shift")}
    assert RunFigures.from_state(Place(2), older).shifts == [None, None]


def test_resuming_restores_weights_and_cuts_the_log(setup: Setup, tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path / "run")
    folder.path.mkdir()
    setup.method.start_task(0)
    optimizer = setup.method.optimizer(0, setup.method.phases(0)[0])
    journal = Journal(folder, setup, writes=True)
    assert journal.resume()[1] is None
    journal.save_task(0)
    journal.record(EPOCH)
    journal.save(RunFigures(Place(0, 0, 1), steps=3), optimizer, Tally(steps=3))
    journal.record({**EPOCH, "epoch": 1})
    journal.close()
    saved = {name: value.clone() for name, value in setup.model.state_dict().items()}
    with torch.no_grad():
        for parameter in setup.model.parameters():
            parameter.add_(1.0)
    again = Journal(folder, setup, writes=True)
    progress, state = again.resume()
    again.close()
    assert (progress.place, progress.steps) == (Place(0, 0, 1), 3)
    assert state is not None
    assert all(torch.equal(value, saved[n]) for n, value in setup.model.state_dict().items())
    assert list(read_metrics(folder.metrics_path)) == [EPOCH]


def test_other_ranks_write_nothing(setup: Setup, tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path / "run")
    folder.path.mkdir()
    journal = Journal(folder, setup, writes=False)
    journal.record({"kind": "epoch"})
    journal.save_task(0)
    journal.close()
    assert list(folder.path.iterdir()) == []
