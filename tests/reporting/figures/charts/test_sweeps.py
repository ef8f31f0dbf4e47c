"""Sweeps: ticks stand where the runs are."""

from pathlib import Path

import pytest

from nscl.reporting import gather, sections
from nscl.reporting.figures.charts.sweeps import sweep
from nscl.reporting.figures.style import styled
from nscl.reporting.plot_data.sweeps import sweeps
from tests.reporting.making import make_run


@pytest.mark.parametrize(
    ("values", "marked"),
    [((3.0, 10.0, 30.0, 100.0), True), ((10.0, 50.0, 150.0), True), ((10.0, 11.0, 150.0), False)],
)
def test_a_sweep_has_ticks_where_runs_are(
    values: tuple[float, ...], marked: bool, tmp_path: Path
) -> None:
    for a in values:
        make_run(tmp_path, "adam-nscl", a=a)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = sweep(sweeps(section))
    for ax in figure.axes:
        ticks = [label.get_text() for label in ax.get_xticklabels()]
        assert (ticks == [f"{a:g}" for a in values]) is marked
        assert not marked or not ax.get_xticks(minor=True).size
