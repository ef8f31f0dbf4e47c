"""Of many series few have colours; names in the plane overlap nothing."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import digest, plans
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.losses import old_losses, training_loss
from nscl.reporting.figures.charts.plane import acc_bwt
from nscl.reporting.figures.style import laid_out, styled
from nscl.reporting.plot_data.selection import standing_out
from tests.reporting.making import make_run


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Section:
    root = tmp_path_factory.mktemp("many")
    for i in range(12):
        method = f"method-{'x' * i}"
        make_run(root, method, stores="data" if i % 3 == 0 else "nothing", tracked=2)
    (section,) = sections(gather([root]).runs)
    return section


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
        {plan.name: digest(plan) for plan in plans(many, {"sweep"}, named)}
        for named in ((), (hidden,))
    )
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        "acc-after-task", "task-accuracy", "training-loss", "step-time", "old-losses"
    }  # fmt: skip


def test_names_in_the_plane_overlap_nothing(many: Section) -> None:
    with styled():
        figure = laid_out(acc_bwt(many))
        names = [text for text in figure.texts if text.get_gid() == "name"]
        boxes = [text.get_window_extent() for text in names]
        frame = figure.axes[0].get_window_extent()
    assert len(names) >= 8
    assert {text.get_text() for text in names} <= {series.label for series in many.shown}
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 + 2 for box in boxes)


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
