"""Unpickle numpy arrays and plain containers, and nothing else.

A pickle is a program: loading one runs whatever it names. Here the three numpy names that an array
needs are answered with inert stand-ins that only take a shape, a plain dtype and bytes; every other
name is refused before anything is called.
"""

import pickle
import re
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from nscl.data.errors import CorruptDataError

_PLAIN_DTYPE = re.compile(r"[biuf][1248]")


class _RefusedError(Exception):
    """The pickle wants something that a file of arrays has no use for."""


class _ArrayClass:
    """Stands for ``numpy.ndarray``: something to point at, not to call."""

    def __new__(cls, *_: object) -> NoReturn:
        raise _RefusedError("calls numpy.ndarray")

    def __setstate__(self, _: object) -> None:
        # Without this method a pickle could set attributes on the class itself.
        raise _RefusedError("changes numpy.ndarray")


class _Dtype:
    """Stands for ``numpy.dtype``: booleans, integers and floats only."""

    def __init__(self, code: object, *_: object) -> None:
        name = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if not (isinstance(name, str) and _PLAIN_DTYPE.fullmatch(name)):
            raise _RefusedError(f"has an array of dtype {name!r}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        if state[1] in (b">", ">"):
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """Stands for ``numpy.core.multiarray._reconstruct``; its state is the array's bytes."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind is not _ArrayClass:
            raise _RefusedError("reconstructs something that is not an array")
        self.value: np.ndarray = np.empty(0)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not (isinstance(kind, _Dtype) and isinstance(shape, tuple) and isinstance(raw, bytes)):
            raise _RefusedError("has an array without plain bytes")
        flat = np.frombuffer(raw, kind.dtype)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


_ADMITTED: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): _ArrayClass,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _ADMITTED:
            raise _RefusedError(f"asks for {module}.{name}")
        return _ADMITTED[module, name]


def load_arrays(file: BinaryIO, path: str | Path) -> dict[str, object]:
    """Return the dictionary pickled in ``file``, its arrays as numpy arrays (read-only).

    Python 2's strings come back as bytes, keys as text. ``path`` is for messages.
    """
    try:
        content = _Unpickler(file, encoding="bytes").load()
    except _RefusedError as refusal:
        raise CorruptDataError(
            f"{path} was not opened: its pickle {refusal}, which a file of images never does; "
            "it may be hostile, get the file from its publisher"
        ) from None
    except Exception as error:
        # A broken pickle program can fail in any way a Python program can.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorruptDataError(f"{path} is truncated or not a pickle ({reason})") from None
    if not isinstance(content, dict):
        raise CorruptDataError(f"{path} is not a pickled dictionary of arrays")
    return {_text(key): _plain(value) for key, value in content.items()}


def _plain(value: object) -> object:
    return value.value if isinstance(value, _Array) else value


def _text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
