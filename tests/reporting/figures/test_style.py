"""Legends, markers and dashes; the settings of others stay as they are."""

from collections.abc import Callable

import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

from nscl.metrics import Summary
from nscl.reporting import Section
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.plane import acc_bwt
from nscl.reporting.figures.style import curve, handles_of, laid_out, legend, some_inks, styled


@pytest.mark.parametrize("make", [acc_after_task, acc_bwt, task_accuracy, step_time])
def test_long_legends_leave_the_axes_their_room(
    ablated: Section, make: Callable[[Section], Figure]
) -> None:
    with styled():
        figure = laid_out(make(ablated))
        bounds = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert bounds.x0 > -0.01
    assert bounds.y0 > -0.01
    assert bounds.x1 < width + 0.01
    assert bounds.y1 < height + 0.01
    for ax in figure.axes:
        assert ax.get_position().height * height > 1.0
        assert ax.get_position().width * width > 1.4
    shown = [series for series in ablated.shown if series.finished or make is not acc_bwt]
    assert len(figure.legends[0].get_texts()) == len(shown)


def test_a_legend_of_too_many_says_how_many_more() -> None:
    with styled():
        figure = Figure(figsize=(7, 3), layout="constrained")
        ax = figure.add_subplot()
        for i in range(60):
            ax.plot([0, 1], [i, i], label=f"series {i}")
        legend(figure, handles_of(ax))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(texts) == 48
    assert texts[-2:] == ["series 46", "and 13 more"]


@pytest.mark.parametrize("tasks", [1, 3, 8, 9, 10, 20, 25])
def test_where_a_curve_ends_has_a_marker(tasks: int) -> None:
    ax = Figure().subplots()
    (ink,) = some_inks(1)
    curve(ax, range(1, tasks + 1), [Summary(50.0, None)] * tasks, ink, "finetune")
    (line,) = ax.lines
    first, every = line.get_markevery()
    assert (tasks - 1 - first) % every == 0
    assert -(-tasks // every) <= 8


def test_settings_of_others_are_left_alone() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with styled():
        assert mpl.rcParams["font.size"] == 8
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(("offset", "dashes"), [ink.dash for ink in some_inks(5)[1:]])
def test_dashes_are_seen_beside_the_marker_of_a_legend(
    offset: float, dashes: tuple[float, ...]
) -> None:
    with styled():
        length = rcParams["legend.handlelength"] * rcParams["legend.fontsize"]
        thick, half = rcParams["lines.linewidth"], rcParams["lines.markersize"] / 2
    gaps, place = [], -offset * thick
    for i, part in enumerate(dashes * 20):
        if i % 2:
            gaps.append((place, place + part * thick))
        place += part * thick
    left, right = length / 2 - half, length / 2 + half
    seen = [(begin, end) for begin, end in gaps if begin > 0 and end < length]
    assert any(end <= left or begin >= right for begin, end in seen)
