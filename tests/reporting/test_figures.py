"""Nothing in a figure is cut off or too small to read, however long names and streams are."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.text import Text

from nscl.metrics import AccuracyMatrix, Summary
from nscl.reporting import LeftOut, Section, gather, sections, views
from nscl.reporting.figures import draw, plans, styled
from nscl.reporting.figures.curves import acc_after_task, acc_bwt, step_time, task_accuracy
from nscl.reporting.figures.matrices import _short, accuracy_matrix, layer_map
from nscl.reporting.figures.spectrum import singular_values
from nscl.reporting.figures.style import DASHES, curve, laid_out, legend, some_inks
from nscl.reporting.figures.texts import fitted, width
from nscl.reporting.figures.trials import old_losses, sweep
from nscl.results import spectra as spectra_file
from tests.reporting.making import make_run


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Section:
    root = tmp_path_factory.mktemp("crowded")
    layers = {f"backbone.stage{i}.0.shortcut.0": 20 for i in range(9)} | {"backbone.conv1": 27}
    for i in range(14):
        make_run(root, f"method-{i}-$of^mine_", tasks=13, layers=layers if i == 0 else None)
    (section,) = sections(gather([root]).runs)
    return section


@pytest.mark.parametrize(
    "draw",
    [
        acc_after_task,
        task_accuracy,
        lambda section: layer_map(section.series[0], "free"),
        lambda section: singular_values(section.series[0]),
    ],
)
def test_all_texts_are_inside_and_readable(
    crowded: Section, draw: Callable[[Section], Figure], tmp_path: Path
) -> None:
    with styled():
        figure = laid_out(draw(crowded))
        bounds = figure.get_tightbbox()
        texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        figure.savefig(tmp_path / "figure.png")
    width, height = figure.get_size_inches()
    assert bounds.x0 > -0.01
    assert bounds.y0 > -0.01
    assert bounds.x1 < width + 0.01
    assert bounds.y1 < height + 0.01
    assert min(t.get_fontsize() for t in texts) >= 7
    assert width <= 7.05  # fits on a page


@pytest.fixture(scope="module")
def ablated(tmp_path_factory: pytest.TempPathFactory) -> Section:
    """26 rows with long names, as ablations have them; one of another method, one unfinished."""
    root = tmp_path_factory.mktemp("ablated")
    layers = {"backbone.one": 9}
    for i in range(24):
        label = f"variant {i}, displacement since the last task and a ridge of 10 to the {i}"
        make_run(root, "adam-nscl", layers=layers, label=label, switch=i, plain=False)
    make_run(root, "connector", layers=layers)
    make_run(root, "adam-nscl", finished=False, tasks=3, switch=24, plain=False)
    (section,) = sections(gather([root]).runs)
    return section


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
    drawn = dict(plans(ablated, {"sweep"}))
    with styled():
        pages = [drawn["accuracy-matrix"](), drawn["accuracy-matrix-2"]()]
    assert "accuracy-matrix-3" not in drawn
    assert len({page.axes[0].images[0].get_clim() for page in pages}) == 1
    titles = [t for page in pages for ax in page.axes if (t := ax.get_title("left"))]
    assert len(titles) == len(ablated.shown)


def test_no_figure_is_taller_than_a_page(ablated: Section, crowded: Section) -> None:
    with styled():
        for section in (ablated, crowded):
            for name, make in plans(section, {"sweep", "old-losses"}):
                assert make().get_figheight() <= 9.5, name


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


def test_a_legend_of_too_many_says_how_many_more() -> None:
    with styled():
        figure = Figure(figsize=(7, 3), layout="constrained")
        ax = figure.add_subplot()
        for i in range(60):
            ax.plot([0, 1], [i, i], label=f"series {i}")
        legend(figure, ax)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(texts) == 48
    assert texts[-2:] == ["series 46", "and 13 more"]


def test_unfinished_runs_are_marked(ablated: Section) -> None:
    with styled():
        figures = [make(ablated) for make in (acc_after_task, task_accuracy, step_time)]
        (title,) = [
            title
            for page in range(2)
            for ax in accuracy_matrix(ablated, page).axes
            if "unfinished" in (title := ax.get_title("left"))
        ]
    for figure in figures:
        texts = [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()]
        assert [text for text in texts if "unfinished" in text] == [
            "adam-nscl (switch=24) (unfinished)"
        ]
    assert title.replace("\n", " ") == "adam-nscl (switch=24) (unfinished)"


def test_spectra_are_drawn_of_every_method_first(ablated: Section) -> None:
    names = [name for name, _ in plans(ablated, set())]
    spectral = [name for name in names if name.startswith("singular-values")]
    assert len(spectral) == 6
    assert spectral[-1] == "singular-values-6-connector"


def test_spectra_that_are_not_drawn_are_told(tmp_path: Path) -> None:
    for i in range(8):
        make_run(tmp_path, f"method-{i}", tasks=1, layers={"one": 4})
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        told = [item.name for item in draw(section) if isinstance(item, LeftOut)]
    assert "singular-values of 2 more series" in told


def test_one_scale_for_all_tasks(ablated: Section) -> None:
    with styled():
        assert len({ax.get_ylim() for ax in task_accuracy(ablated).axes}) == 1


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


@pytest.mark.parametrize("tasks", [1, 3, 8, 9, 10, 20, 25])
def test_where_a_curve_ends_has_a_marker(tasks: int) -> None:
    ax = Figure().subplots()
    (ink,) = some_inks(1)
    curve(ax, range(1, tasks + 1), [Summary(50.0, None)] * tasks, ink, "finetune")
    (line,) = ax.lines
    first, every = line.get_markevery()
    assert (tasks - 1 - first) % every == 0
    assert -(-tasks // every) <= 8


def test_bwt_has_round_numbers_on_its_axis(tmp_path: Path) -> None:
    """From -37.6 to 5.7, as measured; eights would be the nearest to six steps."""
    for method, end in (("finetune", 16.4), ("joint", 59.7)):
        run = make_run(tmp_path, method, tasks=2)
        told = replace(run.result(), accuracy=AccuracyMatrix([[54.0], [end, 60.0]]))
        run.result_path.unlink()
        run.write_result(told)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = laid_out(acc_bwt(section))
    steps = {round(b - a, 6) for a, b in pairwise(figure.axes[0].get_xticks())}
    assert steps == {10.0}


def test_halves_are_rounded_up() -> None:
    texts = [_short(value, 0) for value in (0.5, 1.5, 62.5, 63.5, 62.499)]
    assert texts == ["1", "2", "63", "64", "62"]
    assert [_short(value, 2) for value in (0.125, 0.375, 0.1249, 1.0, 0.0)] == [
        "0.13", "0.38", "0.12", "1.00", "0.00"
    ]  # fmt: skip


@pytest.mark.parametrize("make", [acc_after_task, acc_bwt, task_accuracy, step_time, old_losses])
def test_open_markers_keep_old_data(make: Callable[[Section], Figure], tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", tracked=2)
    make_run(tmp_path, "gem", stores="data", tracked=2)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        handles = make(section).legends[0].get_lines()
    ewc, gem = (each.get_markerfacecolor() for each in handles)
    assert (ewc, gem) == (some_inks(1)[0].colour, "white")


def test_losses_of_old_tasks_have_one_scale_and_plain_numbers(tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", tracked=2)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = old_losses(section)
        figure.canvas.draw()
    first, second = figure.axes
    assert first.get_ylim() == second.get_ylim()
    low, high = first.get_ylim()
    told = [text.get_text() for text in first.get_yticklabels() if text.get_text()]
    shown = [text for text in told if low <= float(text) <= high]  # no 2 × 10⁰ among them
    assert len(shown) >= 2


def test_losses_of_exactly_zero_are_drawn_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ewc", tracked=2)
    lines = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    for record in lines:
        if "old_losses" in record:
            record["old_losses"] = [0.0] * len(record["old_losses"])
    run.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in lines))
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        assert laid_out(old_losses(section)).axes[0].get_title(loc="left") == "task 1"


@pytest.mark.parametrize(("stores", "told"), [("data", True), ("parameters", False)])
def test_open_markers_are_explained_where_there_are_any(
    stores: str, told: bool, tmp_path: Path
) -> None:
    make_run(tmp_path, "gem", stores=stores)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        (ax,) = acc_bwt(section).axes
    assert ("open markers keep old data" in ax.get_xlabel()) is told


@pytest.mark.parametrize("room", [0.4, 1.0, 3.0])
def test_texts_are_as_wide_as_their_room_at_most(room: float) -> None:
    text = "adam-nscl (acts_on=displacement, alpha=300, note=$x_1$, " + "W" * 60 + ")"
    lines = fitted(text, room).replace(r"\$", "$").split("\n")
    assert len(lines) == 3
    assert all(width(line, 8.0) <= room for line in lines)
    assert lines[-1].endswith("…")


def test_settings_of_others_are_left_alone() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with styled():
        assert mpl.rcParams["font.size"] == 8
    assert dict(mpl.rcParams) == before


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
        figure = sweep(views.sweeps(section))
    for ax in figure.axes:
        ticks = [label.get_text() for label in ax.get_xticklabels()]
        assert (ticks == [f"{a:g}" for a in values]) is marked
        assert not marked or not ax.get_xticks(minor=True).size


@pytest.mark.parametrize(("offset", "dashes"), DASHES[1:])
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
