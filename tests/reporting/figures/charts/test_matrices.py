"""Heat maps: one scale, pages, numbers in cells."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import plans
from nscl.reporting.figures.charts.matrices import accuracy_matrix, layer_map
from nscl.reporting.figures.drawing import draw
from nscl.reporting.figures.sheets import SheetFigure
from nscl.reporting.figures.style import styled
from nscl.results.records import spectra as spectra_file
from tests.reporting.making import make_run

MARGINS = {"accuracy on task", "after task", "accuracy (%)"}


def titles(figure: Figure) -> list[Text]:
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text for text in texts if text.get_text() not in {*MARGINS, ""}]


def stamps(figure: Figure) -> list[str]:
    assert isinstance(figure, SheetFigure)
    return [text for text, _ in figure.stamps]


def in_cells(figure: Figure, count: int) -> list[str]:
    """The numbers of all cells, row by row: they are stamped before all else."""
    return stamps(figure)[:count]


def test_titles_of_panels_do_not_overlap(ablated: Section) -> None:
    count = 0
    for page in range(2):
        with styled():
            figure = accuracy_matrix(ablated, page)
            boxes = [title.get_window_extent() for title in titles(figure)]
        count += len(boxes)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert count == 26


def test_accuracy_matrices_of_many_series_share_a_scale_and_fill_pages(ablated: Section) -> None:
    found = {plan.name: plan for plan in plans(ablated, {"sweep"})}
    with styled():
        pages = [draw(found["accuracy-matrix"]), draw(found["accuracy-matrix-2"])]
    assert "accuracy-matrix-3" not in found
    # The last image of a page is the bar of its scale.
    assert len({image.get_clim() for page in pages for image in page.axes[0].images[:-1]}) == 1
    assert sum(len(titles(page)) for page in pages) == len(ablated.shown)


@pytest.mark.parametrize(("tasks", "numbered"), [(1, True), (7, True), (12, True), (13, False)])
def test_cells_of_up_to_twelve_tasks_have_numbers_that_fit(
    tmp_path: Path, tasks: int, numbered: bool
) -> None:
    for i in range(5):
        make_run(tmp_path, f"method{i}", tasks=tasks)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = accuracy_matrix(section)
    assert isinstance(figure, SheetFigure)
    assert figure.get_figheight() <= 9.5
    cells = 5 * tasks * (tasks + 1) // 2
    numbers = [text for text, _ in figure.stamps if numbered]
    assert (len(figure.stamps) > cells) == numbered
    image = figure.axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    assert (right - left) / tasks > (0.14 if numbered else 0.05)
    if numbered:
        # The first map's numbers are inside of it, "98" and all of them two digits wide.
        assert {len(text) for text in numbers[: cells // 5]} == {2}
        places = [place for _, place in figure.stamps[: tasks * (tasks + 1) // 2]]
        assert all(left < x < right and bottom < y < top for x, y in places)


def test_one_failed_run_does_not_take_the_colours_of_the_others(tmp_path: Path) -> None:
    """Nine methods between 84 and 98, one at chance: the scale begins near the nine."""
    for i in range(9):
        make_run(tmp_path, f"method-{i}" + "x" * i)
    failed = make_run(tmp_path, "ewc", finished=False)
    lines = failed.metrics_path.read_text()
    rows = []
    for line in lines.splitlines():
        record = json.loads(line)
        if "accuracies" in record:
            record["accuracies"] = [10.0] * (record["task"] + 1)
        rows.append(json.dumps(record) + "\n")
    failed.metrics_path.write_text("".join(rows))
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = accuracy_matrix(section)
    low, high = figure.axes[0].images[0].get_clim()
    assert 75 < low < high <= 98
    assert f"≤ {low:.0f}" in stamps(figure)  # the scale says that it is clipped
    assert "10" in stamps(figure)  # and the cells, what is below


def test_names_of_sixty_layers_fit_a_page_and_do_not_overlap(tmp_path: Path) -> None:
    layers = {f"layer{i // 10}.{i % 10}.conv": 5 for i in range(60)}
    make_run(tmp_path, "adam-nscl", layers=layers)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = layer_map(section.series[0], "free")
    assert isinstance(figure, SheetFigure)
    names = [place for text, place in figure.stamps if text in layers]
    assert len(names) == 60
    assert figure.get_figheight() <= 9.5
    # Letters of 7.5 points reach from 2 below to 6 above the line.
    assert all(above[1] - below[1] > 8 / 72 for above, below in pairwise(names))


def test_residual_energies_have_numbers_and_decades(tmp_path: Path) -> None:
    run = make_run(tmp_path, "adam-nscl", tasks=10, layers={"one": 9, "all": 5, "none": 4})
    found = spectra_file.read(run.spectra_path)
    for layers in found.values():
        layers["all"]["weights"][:] = 1.0
        layers["none"]["weights"][:] = 0.0
    spectra_file.write(run.spectra_path, found)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = layer_map(section.series[0], "share")
        image = figure.axes[0].images[0]
    texts = in_cells(figure, 30)
    assert texts[10:20] == ["1.00"] * 10
    assert texts[20:] == ["0.00"] * 10
    assert "0.1" in stamps(figure)  # of the scale, as one writes it
    colours = image.norm(image.get_array())
    assert colours[1, 0] == 1
    assert 0.1 < colours[0, 0] < 1  # linear, it would have the colour of nothing
    assert colours[2, 0] == 0


def test_what_rounding_leaves_of_zero_stretches_no_scale(tmp_path: Path) -> None:
    layers = {"some": 9, "fewer": 9, "tiny": 5, "rounded": 4}
    run = make_run(tmp_path, "sgp", tasks=2, layers=layers)
    found = spectra_file.read(run.spectra_path)
    for by_layer in found.values():
        for name, weight in zip(layers, (0.2, 0.01, 1e-10, 4e-18), strict=True):
            by_layer[name]["weights"][:] = weight
    spectra_file.write(run.spectra_path, found)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        residual, free = (layer_map(section.series[0], what) for what in ("share", "free"))
    image = residual.axes[0].images[0]
    assert image.get_clim() == (pytest.approx(0.01), pytest.approx(0.2))
    assert in_cells(residual, 8)[::2] == ["0.20", "0.01", "1e-10", "0.00"]
    assert in_cells(free, 8)[-1] == "0.00"


def test_matrices_of_unfinished_runs_have_cells_like_the_others(tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", tasks=5)
    make_run(tmp_path, "lwf", tasks=2, finished=False)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = accuracy_matrix(section)
    whole, part = (image.get_extent() for image in figure.axes[0].images[:2])
    assert whole[1] - whole[0] == pytest.approx(part[1] - part[0])
    assert whole[2:] == pytest.approx(part[2:])
    assert len([text for text in stamps(figure) if len(text) == 2 and text > "60"]) >= 15 + 3
