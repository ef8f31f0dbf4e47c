"""Curves and the plane of ACC and BWT: axes, markers, scales."""

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.losses import old_losses, training_loss
from nscl.reporting.figures.charts.plane import acc_bwt
from nscl.reporting.figures.style import some_inks, styled
from tests.reporting.making import make_run


def test_one_scale_for_all_tasks(ablated: Section) -> None:
    with styled():
        assert len({ax.get_ylim() for ax in task_accuracy(ablated).axes}) == 1


@pytest.mark.parametrize(
    "make", [acc_after_task, acc_bwt, task_accuracy, step_time, old_losses, training_loss]
)
def test_open_markers_keep_old_data(make: Callable[[Section], Figure], tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", tracked=2)
    make_run(tmp_path, "gem", stores="data", tracked=2)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        handles = make(section).legends[0].get_lines()
    ewc, gem = (each.get_markerfacecolor() for each in handles)
    assert (ewc, gem) == (some_inks(1)[0].colour, "white")
