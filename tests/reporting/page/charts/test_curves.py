"""Cards of curves: their rows are the numbers of the figures, rounded; a page stays small."""

from pathlib import Path

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.curves import acc_card, sweep_cards, task_card, time_card
from nscl.reporting.page.charts.losses import loss_card
from nscl.reporting.plot_data.curves import acc_curve, task_curve
from tests.reporting.making import make_run


def test_rows_are_mean_and_deviation_of_every_series(section: Section) -> None:
    (card,) = acc_card(section)
    rows = card.spec["datasets"]["rows"]
    assert [row["series"] for row in rows] == [series.marked for series in section.shown]
    for row, series in zip(rows, section.shown, strict=True):
        curve = acc_curve(series)
        assert row["x"] == [1, 2, 3, 4]
        assert row["mean"] == [round(point.mean, 2) for point in curve]
        assert row["std"] == [round(point.std or 0.0, 2) for point in curve]


def test_a_task_is_chosen_from_all_but_the_last(section: Section) -> None:
    (card,) = task_card(section)
    menus = [param for param in card.spec["params"] if param["name"] == "choice"]
    assert menus[0]["bind"]["options"] == ["task 1", "task 2", "task 3"]
    second = [row for row in card.spec["datasets"]["rows"] if row["task"] == "task 2"]
    assert [row["x"] for row in second] == [[2, 3, 4]] * 4
    curve = task_curve(section.series[0], 1)
    assert second[0]["mean"] == [round(point.mean, 2) for point in curve]


def test_one_task_has_no_curves_and_no_log_no_times(tmp_path: Path) -> None:
    run = make_run(tmp_path, tasks=1)
    (alone,) = sections(gather([tmp_path]).runs)
    assert [*acc_card(alone), *task_card(alone), *loss_card(alone), *sweep_cards(alone)] == []
    (times,) = time_card(alone)
    assert times.spec["datasets"]["rows"][0]["mean"] == [10.0]
    (copy,) = sections(gather([run.result_path]).runs)
    assert list(time_card(copy)) == []


def test_a_sweep_has_a_card_per_figure_and_a_point_per_value(section: Section) -> None:
    acc, bwt = sweep_cards(section)
    assert (acc.key, bwt.key) == ("sweep-acc-0", "sweep-bwt-0")
    assert acc.title == "ACC against a (adam-nscl)"
    (row,) = acc.spec["datasets"]["rows"]
    assert row["x"] == [10.0, 1000.0]
    assert row["mean"] == [round(s.figure("acc").mean, 2) for s in section.series[2:]]  # type: ignore[union-attr]
    assert "usermeta" not in acc.spec  # one line needs no key of its own
