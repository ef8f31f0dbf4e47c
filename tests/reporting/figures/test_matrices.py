"""Heat maps: one scale, pages, numbers in cells."""

from itertools import pairwise
from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import plans
from nscl.reporting.figures.drawing import draw
from nscl.reporting.figures.matrices import accuracy_matrix, layer_map
from nscl.reporting.figures.style import laid_out, styled
from nscl.results.records import spectra as spectra_file
from tests.reporting.making import make_run


def test_titles_of_panels_do_not_overlap(ablated: Section) -> None:
    count = 0
    for page in range(2):
        with styled():
            figure = laid_out(accuracy_matrix(ablated, page))
            titled = [ax for ax in figure.axes if ax.get_title("left")]
            boxes = [ax._left_title.get_window_extent() for ax in titled]  # type: ignore[attr-defined]
        count += len(titled)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert count == 26


def test_accuracy_matrices_of_many_series_share_a_scale_and_fill_pages(ablated: Section) -> None:
    found = {plan.name: plan for plan in plans(ablated, {"sweep"})}
    with styled():
        pages = [draw(found["accuracy-matrix"]), draw(found["accuracy-matrix-2"])]
    assert "accuracy-matrix-3" not in found
    assert len({page.axes[0].images[0].get_clim() for page in pages}) == 1
    titles = [t for page in pages for ax in page.axes if (t := ax.get_title("left"))]
    assert len(titles) == len(ablated.shown)


def test_names_of_sixty_layers_fit_a_page_and_do_not_overlap(tmp_path: Path) -> None:
    layers = {f"layer{i // 10}.{i % 10}.conv": 5 for i in range(60)}
    make_run(tmp_path, "adam-nscl", layers=layers)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = laid_out(layer_map(section.series[0], "free"))
        names = figure.axes[0].get_yticklabels()
        boxes = [text.get_window_extent() for text in names]
    assert len(boxes) == 60
    assert figure.get_figheight() <= 9.5
    assert not any(below.overlaps(above) for above, below in pairwise(boxes))


def test_residual_energies_have_numbers_and_decades(tmp_path: Path) -> None:
    run = make_run(tmp_path, "adam-nscl", tasks=10, layers={"one": 9, "all": 5, "none": 4})
    found = spectra_file.read(run.spectra_path)
    for layers in found.values():
        layers["all"]["weights"][:] = 1.0
        layers["none"]["weights"][:] = 0.0
    spectra_file.write(run.spectra_path, found)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = laid_out(layer_map(section.series[0], "share"))
        image = figure.axes[0].images[0]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert len(texts) == 30
    assert texts[10:20] == ["1.00"] * 10
    assert texts[20:] == ["0.00"] * 10
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
    assert [text.get_text() for text in residual.axes[0].texts[::2]] == [
        "0.20", "0.01", "1e-10", "0.00"
    ]  # fmt: skip
    assert free.axes[0].texts[-1].get_text() == "0.00"


def test_matrices_of_unfinished_runs_have_cells_like_the_others(tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", tasks=5)
    make_run(tmp_path, "lwf", tasks=2, finished=False)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        whole, part, _ = accuracy_matrix(section).axes
    assert whole.get_xlim() == part.get_xlim()
    assert [len(ax.texts) for ax in (whole, part)] == [15, 3]
