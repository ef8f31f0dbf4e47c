"""Of many series few have colours."""

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import plans
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.losses import old_losses, training_loss
from nscl.reporting.figures.digests import figure_digest
from nscl.reporting.figures.style import styled
from nscl.reporting.plot_data.selection import standing_out
from tests.reporting.making import make_run


@pytest.mark.parametrize(
    "make", [acc_after_task, task_accuracy, step_time, old_losses, training_loss]
)
def test_others_are_thin_and_grey(many: Section, make: Callable[..., Figure]) -> None:
    standing = standing_out(many)
    assert 3 <= sum(standing) <= 4
    with styled():
        figure = make(many, standing)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    coloured = [s.label for s, shown in zip(many.shown, standing, strict=True) if shown]
    assert legend == [*coloured, f"{12 - sum(standing)} others"]
    (grey,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    assert len(grey.get_segments()) == 12 - sum(standing)


def test_a_named_series_changes_the_figures_of_curves_alone(many: Section) -> None:
    hidden = next(
        s.label for s, shown in zip(many.shown, standing_out(many), strict=True) if not shown
    )
    before, after = (
        {plan.name: figure_digest(plan) for plan in plans(many, {"sweep"}, named)}
        for named in ((), (hidden,))
    )
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        "acc-after-task", "task-accuracy", "training-loss", "step-time", "old-losses"
    }  # fmt: skip


def test_up_to_eight_series_are_all_coloured(tmp_path: Path) -> None:
    for i in range(8):
        make_run(tmp_path, f"method-{i}")
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = acc_after_task(section, standing_out(section))
    assert len(figure.legends[0].get_texts()) == 8


def test_the_few_with_data_of_a_kind_are_all_coloured(tmp_path: Path) -> None:
    for i in range(10):
        make_run(tmp_path, f"method-{'x' * i}", tracked=2 if i in (4, 5) else 0)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = old_losses(section, standing_out(section))
    assert len(figure.legends[0].get_texts()) == 2
    assert not [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
