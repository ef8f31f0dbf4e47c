"""Training losses of each task, mean over seeds, from the records of epochs."""

import json
from pathlib import Path

import pytest

from nscl.reporting import NoFigureDataError, gather, sections
from nscl.reporting.plot_data.training import training_losses
from nscl.results import RunDirectory
from tests.reporting.making import EPOCHS, make_run


def with_losses(run: RunDirectory, *losses: float) -> None:
    """Epochs with these losses in turn, as text: NaN too."""
    records = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    rest = iter(losses)
    for record in records:
        if record["kind"] == "epoch":
            record["loss"] = next(rest, 0.5)
    run.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_losses_are_means_over_seeds_epoch_by_epoch(tmp_path: Path) -> None:
    with_losses(make_run(tmp_path, "ewc", 0, tasks=2), 2.0, 1.0, 0.5, 4.0)
    with_losses(make_run(tmp_path, "ewc", 1, tasks=2), 3.0, 2.0, 1.5, 2.0)
    (section,) = sections(gather([tmp_path]).runs)
    found = training_losses(section.series[0])
    assert [point.mean for point in found[0]] == pytest.approx([2.5, 1.5, 1.0])
    assert [point.mean for point in found[1]] == pytest.approx([3.0, 0.5, 0.5])
    assert found[0][0].std == pytest.approx(0.5**0.5)


def test_a_task_that_only_one_seed_has_begun_is_left_out(tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", 0, tasks=2, finished=False)
    make_run(tmp_path, "ewc", 1, tasks=1, finished=False)
    (section,) = sections(gather([tmp_path]).runs)
    found = training_losses(section.series[0])
    assert {task: len(points) for task, points in found.items()} == {0: EPOCHS}


def test_a_curve_ends_where_a_loss_is_no_number(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ewc", tasks=1)
    with_losses(run, 2.0, 0.25, 7.0)
    run.metrics_path.write_text(run.metrics_path.read_text().replace("7.0", "null"))
    (section,) = sections(gather([tmp_path]).runs)
    assert [point.mean for point in training_losses(section.series[0])[0]] == [2.0, 0.25]


def test_without_epochs_there_is_a_reason(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ewc")
    (section,) = sections(gather([run.result_path]).runs)
    with pytest.raises(NoFigureDataError, match=r"metrics\.jsonl"):
        training_losses(section.series[0])
