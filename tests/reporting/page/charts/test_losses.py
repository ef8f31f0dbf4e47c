"""Cards of losses: a curve per task, and none where there is nothing to show."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.losses import loss_card, training_card
from nscl.reporting.plot_data.curves import old_losses
from nscl.reporting.plot_data.training import training_losses
from tests.reporting.making import make_run


def test_losses_of_zero_have_no_place_on_a_logarithmic_axis(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ewc", tracked=2)
    lines = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    for record in lines[:2]:
        record["old_losses"] = [0.0]
    run.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in lines))
    (found,) = sections(gather([tmp_path]).runs)
    (card,) = loss_card(found)
    first, second = card.spec["datasets"]["rows"]
    places = old_losses(found.series[0]).places
    assert first["x"] == pytest.approx(places[2:], abs=1e-3)
    assert (first["task"], second["task"]) == ("task 1", "task 2")
    assert min(first["mean"]) > 0
    assert list(loss_card(replace(found, series=()))) == []


def test_a_task_is_learned_in_as_many_points_as_it_has_epochs(section: Section) -> None:
    (card,) = training_card(section)
    rows = card.spec["datasets"]["rows"]
    series = section.shown[0]
    for task, points in training_losses(series).items():
        (row,) = [
            r for r in rows if (r["series"], r["task"]) == (series.marked, f"task {task + 1}")
        ]
        assert row["x"] == list(range(1, len(points) + 1))
        assert row["mean"] == pytest.approx([point.mean for point in points], rel=1e-3)
    assert list(training_card(replace(section, series=()))) == []
