"""A pickle is a program; the hostile ones here are real and leave a mark if they are run."""

import contextlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nscl.data.errors import CorruptDataError
from nscl.data.readers.pickles import load_arrays


class Runs:
    """Unpickling an instance calls ``function(*arguments)``."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("dtype", ["u1", "i8", ">i4", "f4", "?"])
def test_arrays_come_back_as_they_were(protocol: int, dtype: str) -> None:
    array = np.arange(24).astype(dtype).reshape(2, 3, 4)
    turned = np.asfortranarray(array)
    content = {"a": array, "b": turned, "n": [1, "two", None]}
    if protocol < 3:  # there, Python 3 writes bytes as a call of _codecs.encode
        with pytest.raises(CorruptDataError, match=r"_codecs\.encode"):
            load_arrays(io.BytesIO(pickle.dumps(content, protocol)), "x")
        return
    loaded = load_arrays(io.BytesIO(pickle.dumps(content, protocol)), "x")
    assert loaded["n"] == [1, "two", None]
    for name in "ab":
        np.testing.assert_array_equal(loaded[name], array)
        assert np.asarray(loaded[name]).dtype == array.dtype


def test_a_hostile_pickle_is_refused_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    content = pickle.dumps({"data": Runs(os.system, f"touch {mark}")})
    pickle.loads(content)
    assert mark.exists(), "the pickle must really be hostile"
    mark.unlink()
    with pytest.raises(CorruptDataError, match=r"f\.pkl was not opened: .*system.*hostile") as info:
        load_arrays(io.BytesIO(content), "f.pkl")
    assert not mark.exists()
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    "hostile",
    [
        Runs(eval, "1"),
        Runs(exec, ""),
        Runs(getattr, "text", "upper"),
        Runs(np.ndarray, (1 << 40,)),
        Runs(np.dtype, "O"),
        pytest.param(Runs(np.load, "x"), id="numpy.load"),  # a function shows its address
        np.array([Runs(os.getpid)], dtype=object),
        Path("x"),
    ],
    ids=lambda hostile: type(hostile).__name__ + str(getattr(hostile, "call", "")),
)
def test_everything_but_arrays_is_refused(hostile: object) -> None:
    with pytest.raises(CorruptDataError, match="was not opened"):
        load_arrays(io.BytesIO(pickle.dumps({"data": hostile}, 4)), "x")


def test_the_stand_ins_cannot_be_changed_from_inside() -> None:
    # GLOBAL numpy.ndarray, then BUILD with a state that would set attributes on the class.
    program = b"\x80\x04cnumpy\nndarray\nN}\x8c\x01ai\x86\x86b."
    with pytest.raises(CorruptDataError):
        load_arrays(io.BytesIO(program), "x")
    program = b"\x80\x04cnumpy\nndarray\nN}\x8c\x08poisonedK\x01s\x86b."
    with pytest.raises(CorruptDataError):
        load_arrays(io.BytesIO(program), "x")
    whole = load_arrays(io.BytesIO(pickle.dumps({"a": np.zeros(2, np.uint8)}, 4)), "x")
    assert np.asarray(whole["a"]).shape == (2,)


@settings(deadline=None)
@given(st.data())
def test_no_damage_gets_out_as_anything_but_a_clear_error(data: st.DataObject) -> None:
    whole = pickle.dumps({"data": np.arange(50, dtype=np.uint8), "labels": [1, 2]}, 4)
    cut = data.draw(st.integers(0, len(whole)))
    place = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole[:cut])
    if place < cut:
        broken[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptDataError):
        assert isinstance(load_arrays(io.BytesIO(bytes(broken)), "x"), dict)


def test_something_else_than_a_dictionary_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="not a pickled dictionary"):
        load_arrays(io.BytesIO(pickle.dumps([1, 2])), "x")
