"""Eigenvalues and weights per task and layer, there and back."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nscl.results import FormatError, WriteError
from nscl.results.records import spectra

layer_names = st.text("abz.09/_", min_size=1, max_size=8)
values = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5),
    elements=st.floats(0, 1, width=32),
)
pairs = values.map(lambda a: {"eigenvalues": a, "weights": (a > 0.5).astype(a.dtype)})
all_spectra = st.dictionaries(
    st.integers(0, 30), st.dictionaries(layer_names, pairs, min_size=1, max_size=3), max_size=3
)


def assert_equal(found, want):
    assert list(found) == sorted(want)
    for task, layers in want.items():
        assert set(found[task]) == set(layers)
        for layer, pair in layers.items():
            for kind in ("eigenvalues", "weights"):
                np.testing.assert_array_equal(found[task][layer][kind], pair[kind], strict=True)


@given(all_spectra)
def test_round_trip(tmp_path_factory, want):
    path = tmp_path_factory.mktemp("s") / "spectra.npz"
    spectra.write(path, want)
    assert_equal(spectra.read(path), want)


def test_the_keys_in_the_file_are_the_documented_ones(tmp_path):
    spectra.write(tmp_path / "s", {2: {"layer1.0.conv1": {"eigenvalues": [1.0], "weights": [0.0]}}})
    with np.load(tmp_path / "s") as file:
        assert sorted(file.files) == [
            "task2/layer1.0.conv1/eigenvalues",
            "task2/layer1.0.conv1/weights",
        ]


def test_tasks_are_added_one_by_one_and_a_repeated_one_is_replaced(tmp_path):
    path = tmp_path / "spectra.npz"
    for task, value in ((0, 1.0), (1, 2.0), (1, 3.0)):
        spectra.add_task(path, task, {"fc": {"eigenvalues": [value], "weights": [0.5]}})
    found = spectra.read(path)
    assert list(found) == [0, 1]
    assert found[0]["fc"]["eigenvalues"] == [1.0]
    assert found[1]["fc"]["eigenvalues"] == [3.0]


@pytest.mark.parametrize(
    "pair",
    [
        {"eigenvalues": [1.0]},
        {"eigenvalues": [1.0], "weights": [1.0, 0.0]},
        {"eigenvalues": ["x"], "weights": ["y"]},
        {"eigenvalues": [1.0], "weights": [1.0], "more": [1.0]},
    ],
)
def test_what_is_no_spectrum_is_refused_before_it_is_written(tmp_path, pair):
    with pytest.raises(FormatError, match="layer 'fc' after task 3 needs"):
        spectra.write(tmp_path / "s", {3: {"fc": pair}})
    assert list(tmp_path.iterdir()) == []


def test_truncated_foreign_and_missing_files_are_named(tmp_path):
    path = tmp_path / "spectra.npz"
    with pytest.raises(FormatError, match=r"spectra\.npz does not exist"):
        spectra.read(path)
    spectra.write(path, {0: {"fc": {"eigenvalues": np.ones(500), "weights": np.ones(500)}}})
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"spectra\.npz"):
            spectra.read(path)
    np.savez(path, other=np.ones(2))
    with pytest.raises(FormatError, match="holds 'other', which is not a spectrum"):
        spectra.read(path)
    np.savez(path, **{"task0/fc/weights": np.ones(2)})
    with pytest.raises(FormatError, match="task 0, layer 'fc' has only"):
        spectra.read(path)
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(FormatError, match="has no spectra"):
        spectra.read(tmp_path / "x.npy")


@given(st.data())
def test_a_damaged_byte_is_an_error_or_harmless(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("s") / "spectra.npz"
    want = {0: {"fc": {"eigenvalues": np.arange(9.0), "weights": np.ones(9)}}}
    spectra.write(path, want)
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    with contextlib.suppress(FormatError):
        assert_equal(spectra.read(path), want)


def test_a_pickle_in_disguise_is_not_run(tmp_path):
    np.savez(tmp_path / "evil.npz", **{"task0/fc/weights": np.array([{}], dtype=object)})
    with pytest.raises(FormatError, match="has no spectra"):
        spectra.read(tmp_path / "evil.npz")


def test_an_unwritable_place_is_named(tmp_path):
    with pytest.raises(WriteError, match="cannot write"):
        spectra.write(tmp_path / "nowhere" / "s", {})
