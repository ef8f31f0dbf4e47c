"""Singular values: a panel per layer and task, the freed part, R and the free directions."""

from pathlib import Path

import numpy as np
import pytest

from nscl.reporting import NoFigureDataError, Section, gather, sections
from nscl.reporting.figures.spectrum import MOST_LAYERS, singular_values
from nscl.reporting.figures.style import styled
from nscl.results.records import spectra as spectra_file
from tests.reporting.making import make_run


def series_of(root: Path) -> Section:
    (section,) = sections(gather([root]).runs)
    return section


def test_every_panel_has_its_spectrum_with_the_freed_part(tmp_path: Path) -> None:
    run = make_run(tmp_path, "adam-nscl", tasks=2, layers={"one": 9, "two": 5})
    raw = spectra_file.read(run.spectra_path)
    with styled():
        figure = singular_values(series_of(tmp_path).series[0])
    assert len(figure.axes) == 2 * 2
    for place, ax in enumerate(figure.axes):
        name, task = ("one", "two")[place // 2], place % 2
        values, weights = raw[task][name]["eigenvalues"][0], raw[task][name]["weights"][0]
        order = np.argsort(-values)
        held, freed = (line.get_ydata() for line in ax.lines)
        np.testing.assert_allclose(held, values[order])
        np.testing.assert_array_equal(np.isfinite(freed), weights[order] == 1)
        share = (weights * values).sum() / values.sum()
        assert ax.get_title("left") == f"{name}\nafter task {task + 1}: R = {share:.2g}"
        assert ax.texts[0].get_text() == f"{weights.sum():.0f} of {len(values)} free"


def test_of_many_layers_and_tasks_the_ends_are_shown(tmp_path: Path) -> None:
    make_run(tmp_path, "adam-nscl", tasks=7, layers={f"layer{i:02}": 4 for i in range(20)})
    with styled():
        figure = singular_values(series_of(tmp_path).series[0])
    titles = [ax.get_title("left") for ax in figure.axes]
    assert len(titles) == 3 * MOST_LAYERS
    assert titles[0].startswith("layer00\nafter task 1:")
    assert titles[-1].startswith("layer19\nafter task 7:")


def test_a_series_without_spectra_has_no_figure(tmp_path: Path) -> None:
    make_run(tmp_path, tasks=1)
    with pytest.raises(NoFigureDataError):
        singular_values(series_of(tmp_path).series[0])
