"""Digests of figures: the same for the same data, another one for anything that is drawn."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import plans
from nscl.reporting.figures.digests import figure_digest
from nscl.reporting.plot_data.missing import left_out
from tests.reporting.making import laboratory


def digests(section: Section) -> dict[str, str]:
    missing = {each.name for each in left_out(section)}
    return {plan.name: figure_digest(plan) for plan in plans(section, missing)}


def test_the_place_of_the_runs_changes_nothing(section: Section, tmp_path: Path) -> None:
    (copy,) = sections(gather([laboratory(tmp_path)]).runs)
    found = digests(section)
    assert digests(copy) == found
    assert len({*found.values()}) == len(found)  # no two figures are taken for each other


@pytest.mark.parametrize("change", [{"label": "renamed"}, {"runs": None}])
def test_each_figure_knows_its_series(section: Section, change: dict[str, Any]) -> None:
    """A renamed series, or one with fewer seeds, changes every figure that shows it."""
    before = digests(section)
    place = next(i for i, s in enumerate(section.series) if s.label.endswith("a=10)"))
    series = section.series[place]
    other = replace(series, **(change if change.get("label") else {"runs": series.runs[:1]}))
    changed = (*section.series[:place], other, *section.series[place + 1 :])
    after = digests(replace(section, series=changed))
    common = before.keys() & after.keys()
    assert {"accuracy-matrix", "acc-bwt", "step-time", "old-losses", "task-accuracy"} <= common
    assert not [name for name in common if before[name] == after[name]]


def test_series_in_another_order_have_other_colours(section: Section) -> None:
    before, after = digests(section), digests(replace(section, series=section.series[::-1]))
    assert before["acc-after-task"] != after["acc-after-task"]
