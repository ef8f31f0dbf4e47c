"""R, free directions and names of layers, against slow and obvious computations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.reporting import Section
from nscl.reporting.plot_data.spectral import (
    evenly,
    layer_names,
    short_names,
    spectra,
    spectral_table,
)
from tests.reporting.making import TASKS


def test_r_and_free_directions(section: Section) -> None:
    run, tasks = spectra(section.series[2])
    raw = run.spectra()
    assert layer_names(tasks) == ["backbone.layers.0", "backbone.layers.1"]
    for task in range(TASKS):
        for row, name in enumerate(layer_names(tasks)):
            values, weights = raw[task][name]["eigenvalues"][0], raw[task][name]["weights"][0]
            freed = sum(v for v, w in zip(values, weights, strict=True) if w == 1)
            assert spectral_table(tasks, "share")[row][task] == pytest.approx(freed / values.sum())
            assert spectral_table(tasks, "free")[row][task] == weights.sum() / len(weights)
            assert np.all(np.diff(tasks[task][name].values) <= 0)


@given(st.integers(1, 500), st.integers(2, 60))
def test_evenly_keeps_both_ends_and_order(count: int, most: int) -> None:
    kept = evenly(count, most)
    assert kept == sorted(set(kept))
    assert len(kept) == min(count, most)
    assert (kept[0], kept[-1]) == (0, count - 1)


def test_short_names_keep_what_differs() -> None:
    assert short_names(["a.b.conv1", "a.b.conv2", "a.c"]) == ["b.conv1", "b.conv2", "c"]
    assert short_names(["backbone.s.0.w", "backbone.s.1.w"]) == ["s.0.w", "s.1.w"]
