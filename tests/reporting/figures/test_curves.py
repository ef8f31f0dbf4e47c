"""Curves and the plane of ACC and BWT: axes, markers, scales."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from nscl.metrics import AccuracyMatrix
from nscl.reporting import Section, gather, sections
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.losses import old_losses, training_loss
from nscl.reporting.figures.charts.plane import acc_bwt
from nscl.reporting.figures.style import laid_out, some_inks, styled
from tests.reporting.making import make_run


def test_one_scale_for_all_tasks(ablated: Section) -> None:
    with styled():
        assert len({ax.get_ylim() for ax in task_accuracy(ablated).axes}) == 1


def test_bwt_has_round_numbers_on_its_axis(tmp_path: Path) -> None:
    """From -37.6 to 5.7, as measured; eights would be the nearest to six steps."""
    for method, end in (("finetune", 16.4), ("joint", 59.7)):
        run = make_run(tmp_path, method, tasks=2)
        found = replace(run.result(), accuracy=AccuracyMatrix([[54.0], [end, 60.0]]))
        run.result_path.unlink()
        run.write_result(found)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = laid_out(acc_bwt(section))
    steps = {round(b - a, 6) for a, b in pairwise(figure.axes[0].get_xticks())}
    assert steps == {10.0}


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


@pytest.mark.parametrize(("stores", "marked"), [("data", True), ("parameters", False)])
def test_open_markers_are_explained_where_there_are_any(
    stores: str, marked: bool, tmp_path: Path
) -> None:
    make_run(tmp_path, "gem", stores=stores)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        (ax,) = acc_bwt(section).axes
    assert ("open markers keep old data" in ax.get_xlabel()) is marked
