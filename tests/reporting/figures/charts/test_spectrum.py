"""Singular values: a panel per layer and task, the freed part, R and the free directions."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from nscl.reporting import NoFigureDataError, Section, gather, sections
from nscl.reporting.figures.charts.spectrum import MOST_LAYERS, Panel, singular_values
from nscl.reporting.figures.style import styled
from nscl.reporting.plot_data.spectral import spectra
from nscl.results.records import spectra as spectra_file
from tests.reporting.making import make_run


def series_of(root: Path) -> Section:
    (section,) = sections(gather([root]).runs)
    return section


def texts(figure: Figure) -> Counter[str]:
    stamped = [text for text, _ in figure.stamps]  # type: ignore[attr-defined]
    return Counter([*stamped, *(text.get_text() for text in figure.axes[0].texts)])


def test_every_panel_says_r_and_what_is_free(tmp_path: Path) -> None:
    run = make_run(tmp_path, "adam-nscl", tasks=2, layers={"one": 9, "two": 5})
    raw = spectra_file.read(run.spectra_path)
    with styled():
        shown = texts(singular_values(series_of(tmp_path).series[0]))
    assert shown["one"] == shown["two"] == 2
    for task, layers in raw.items():
        for spectrum in layers.values():
            values, weights = spectrum["eigenvalues"][0], spectrum["weights"][0]
            share = (weights * values).sum() / values.sum()
            assert shown[f"after task {task + 1}: R = {share:.2g}"]
            assert shown[f"{weights.sum():.0f} of {len(values)} free"]


def test_a_curve_falls_from_the_largest_value_and_marks_what_is_free(tmp_path: Path) -> None:
    run = make_run(tmp_path, "adam-nscl", tasks=1, layers={"one": 9})
    raw = spectra_file.read(run.spectra_path)[0]["one"]
    values, weights = raw["eigenvalues"][0], raw["weights"][0]
    order = np.argsort(-values)
    _, tasks = spectra(series_of(tmp_path).series[0])
    panel = Panel(tasks[0]["one"], "one", 1, left=1.0, width=2.0, top=3.0, height=1.0)
    x, y = zip(*panel.points, strict=True)
    assert list(x) == sorted(x)
    powers = panel.low + (np.array(y) - 2.0) * (panel.high - panel.low)
    np.testing.assert_allclose(10**powers, values[order])
    assert panel.free == [bool(w == 1) for w in weights[order]]
    free = {point for stretch in panel.freed() for point in stretch[1:-1]}
    assert free == {p for p, is_free in zip(panel.points, panel.free, strict=True) if is_free}


def test_of_many_layers_and_tasks_the_ends_are_shown(tmp_path: Path) -> None:
    make_run(tmp_path, "adam-nscl", tasks=7, layers={f"layer{i:02}": 4 for i in range(20)})
    with styled():
        shown = texts(singular_values(series_of(tmp_path).series[0]))
    layers = {text: n for text, n in shown.items() if text.startswith("layer")}
    assert len(layers) == MOST_LAYERS
    assert layers["layer00"] == layers["layer19"] == 3
    tasks = [text for text in shown.elements() if text.startswith("after task")]
    assert len(tasks) == 3 * MOST_LAYERS
    assert {text.split(":")[0] for text in tasks} >= {"after task 1", "after task 7"}


def test_a_series_without_spectra_has_no_figure(tmp_path: Path) -> None:
    make_run(tmp_path, tasks=1)
    with pytest.raises(NoFigureDataError):
        singular_values(series_of(tmp_path).series[0])
