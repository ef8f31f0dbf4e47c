"""Sweeps: which runs form a curve, where its points are, and on which scale."""

from pathlib import Path

import pytest

from nscl.reporting import NoFigureDataError, Section, gather, sections
from nscl.reporting.figures.charts.sweeps import sweep as draw_sweep
from nscl.reporting.page.charts.curves import sweep_cards
from nscl.reporting.plot_data.sweeps import logarithmic, sweeps, together
from tests.reporting.making import make_run


def test_sweeps_stay_when_something_else_was_varied_too(tmp_path: Path) -> None:
    for a in (10.0, 20.0, 30.0):
        make_run(tmp_path, "adam-nscl", a=a, norms="ewc", lr=1)
    make_run(tmp_path, "adam-nscl", a=20.0, norms="freeze", lr=1)
    (section,) = sections(gather([tmp_path]).runs)
    (sweep,) = sweeps(section)
    assert (sweep.option, sweep.values, sweep.beside) == ("a", [10.0, 20.0, 30.0], "")
    assert {s.settings["options.norms"] for s in sweep.series} == {"ewc"}
    for a in (30.0, 40.0):
        make_run(tmp_path, "adam-nscl", a=a, norms="freeze", lr=1)
    make_run(tmp_path, "adam-nscl", a=50.0, norms="ewc", lr=1)
    (section,) = sections(gather([tmp_path]).runs)
    (chart,) = together(sweeps(section))
    assert [(each.beside, each.values) for each in chart] == [
        ("", [10.0, 20.0, 30.0, 50.0]), ("norms=freeze", [20.0, 30.0, 40.0]),
    ]  # fmt: skip


def test_an_unset_rate_has_its_place_in_a_sweep(tmp_path: Path) -> None:
    """None is the first task's rate: a point of the curve, not a hole in it."""
    for scale, rates in (("a", (None, 0.001, 0.1)), ("b", (None, 0.02, 0.03))):
        for rate in rates:
            optim = {"optim": {"lr": 0.01, "later_lr": rate}}
            make_run(tmp_path, "adam-nscl", settings=optim, scale=scale)
    (section,) = sections(gather([tmp_path]).runs)
    plain, scaled = sweeps(section)
    assert (plain.option, plain.values) == ("optim.later_lr", [0.001, 0.01, 0.1])
    assert (scaled.option, scaled.values) == ("optim.later_lr", [0.01, 0.02, 0.03])
    assert [s.settings["optim.later_lr"] for s in plain.series] == [0.001, None, 0.1]


def test_a_first_rate_is_swept_with_the_later_one_that_follows_it(tmp_path: Path) -> None:
    for rate in (0.001, 0.01):
        make_run(tmp_path, "adam-nscl", settings={"optim": {"lr": rate, "later_lr": None}})
    (sweep,) = sweeps(sections(gather([tmp_path]).runs)[0])
    assert (sweep.option, sweep.values) == ("optim.lr", [0.001, 0.01])


def test_the_scale_is_that_of_all_lines_of_a_chart(tmp_path: Path) -> None:
    """Neither line spans a factor of 20, both together do."""
    for norms, values in (("ewc", (1.0, 2.0, 4.0, 5.0)), ("freeze", (10.0, 20.0, 30.0))):
        for a in values:
            make_run(tmp_path, "adam-nscl", a=a, norms=norms)
    (section,) = sections(gather([tmp_path]).runs)
    (chart,) = together(sweeps(section))
    assert not any(logarithmic([line]) for line in chart)
    assert logarithmic(chart)
    card = next(iter(sweep_cards(section)))
    assert {layer["encoding"]["x"]["scale"]["type"] for layer in card.spec["layer"][:4]} == {"log"}
    assert {ax.get_xscale() for ax in draw_sweep(chart).axes} == {"log"}


def test_sweeps_need_one_numeric_difference(section: Section, tmp_path: Path) -> None:
    (sweep,) = sweeps(section)
    assert (sweep.method, sweep.option, sweep.values) == ("adam-nscl", "a", [10.0, 1000.0])
    assert logarithmic([sweep])
    make_run(tmp_path, "adam-nscl", a=1.0, rule="ratio")
    make_run(tmp_path, "adam-nscl", a=2.0, rule="energy")
    (other,) = sections(gather([tmp_path]).runs)
    with pytest.raises(NoFigureDataError, match=r"--method\.a"):
        sweeps(other)
