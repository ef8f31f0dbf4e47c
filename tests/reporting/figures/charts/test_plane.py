"""ACC against BWT: round numbers, open markers, and names that overlap nothing."""

from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from nscl.metrics import AccuracyMatrix
from nscl.reporting import Section, gather, sections
from nscl.reporting.figures.charts.plane import acc_bwt
from nscl.reporting.figures.style import laid_out, styled
from tests.reporting.making import make_run


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


@pytest.mark.parametrize(("stores", "marked"), [("data", True), ("parameters", False)])
def test_open_markers_are_explained_where_there_are_any(
    stores: str, marked: bool, tmp_path: Path
) -> None:
    make_run(tmp_path, "gem", stores=stores)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        (ax,) = acc_bwt(section).axes
    assert ("open markers keep old data" in ax.get_xlabel()) is marked


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
