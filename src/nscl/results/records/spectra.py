"""``spectra.npz``: the eigenvalues of every protected layer after every task, and their weights.

Arrays are keyed ``task{t}/{layer}/eigenvalues`` and ``task{t}/{layer}/weights``. A weight is 0
for a protected direction and 1 for a free one. Both arrays of a layer have one shape (one row per
group for grouped convolutions).
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscl.results.errors import FormatError
from nscl.results.writing import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Layers = dict[str, dict[str, "NDArray[np.floating[Any]]"]]
Spectra = dict[int, Layers]

KINDS = ("eigenvalues", "weights")
_KEY = re.compile(r"task(\d+)/(.+)/(eigenvalues|weights)")


def write(path: str | Path, spectra: Mapping[int, Mapping[str, Mapping[str, "ArrayLike"]]]) -> None:
    """Write the spectra of all tasks, ``{task: {layer: {"eigenvalues": ..., "weights": ...}}}``."""
    import numpy as np

    arrays = {
        f"task{task}/{layer}/{kind}": array
        for task, layers in spectra.items()
        for layer, pair in layers.items()
        for kind, array in _pair(task, layer, pair).items()
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_bytes(path, buffer.getvalue())


def add_task(path: str | Path, task: int, layers: Mapping[str, Mapping[str, "ArrayLike"]]) -> None:
    """Add one task to the file, or replace it: a resumed run repeats a task it could not finish."""
    known: dict[int, Any] = dict(read(path)) if Path(path).exists() else {}
    known[task] = layers
    write(path, known)


def read(path: str | Path) -> Spectra:
    """Read ``{task: {layer: {"eigenvalues": array, "weights": array}}}``, tasks in order."""
    import numpy as np

    try:
        # Opened here because numpy leaves the file open when it turns out to be damaged.
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except FileNotFoundError:
        raise FormatError(f"{path} does not exist") from None
    except Exception as error:
        # Damage anywhere in a zip of arrays shows as one of a dozen exception types.
        raise FormatError(f"{path} is truncated or has no spectra: {error}") from error
    found: Spectra = {}
    for key, array in arrays.items():
        task, layer, kind = _parsed(key, path)
        found.setdefault(task, {}).setdefault(layer, {})[kind] = array
    _check_complete(found, path)
    return dict(sorted(found.items()))


def _pair(task: int, layer: str, pair: Mapping[str, "ArrayLike"]) -> dict[str, Any]:
    import numpy as np

    place = f"the spectrum of layer {layer!r} after task {task}"
    if set(pair) != set(KINDS) or not layer or task < 0:
        raise FormatError(f"{place} needs exactly {' and '.join(KINDS)}, got {sorted(pair)}")
    arrays = {kind: np.asarray(pair[kind]) for kind in KINDS}
    shapes = [array.shape for array in arrays.values()]
    if shapes[0] != shapes[1] or any(array.dtype.kind != "f" for array in arrays.values()):
        raise FormatError(f"{place} needs two float arrays of one shape, got {shapes}")
    return arrays


def _parsed(key: str, path: str | Path) -> tuple[int, str, str]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise FormatError(
            f"{path} holds {key!r}, which is not a spectrum: nscl did not write this file"
        )
    return int(match[1]), match[2], match[3]


def _check_complete(found: Spectra, path: str | Path) -> None:
    for task, layers in found.items():
        for layer, pair in layers.items():
            if set(pair) != set(KINDS):
                raise FormatError(f"{path}: task {task}, layer {layer!r} has only {[*pair]}")
