"""The 1,797 handwritten digits that come with scikit-learn, split in the same way every time.

They are the test part of the UCI "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak,
1998), 8×8 pixels with values 0..16.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nscl.data.errors import DataNotFoundError
from nscl.data.readers.raw import Labels, RawDataset


def read_digits() -> RawDataset:
    """Read the digits; every fifth picture of each class is a test picture.

    Taking every fifth needs no random numbers, so the split is the same with every version of every
    library, and each class has its share.
    """
    rows = _pixels_and_digit()
    images = np.rint(rows[:, :64] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = rows[:, 64]
    test = _every_fifth(labels)
    names = tuple(map(str, range(10)))
    return RawDataset(images[~test], labels[~test], images[test], labels[test], names)


def _pixels_and_digit() -> npt.NDArray[np.int64]:
    """64 pixels and the digit that they show, a row each.

    scikit-learn is asked for its file, not imported: that takes longer than a task on the digits.
    """
    spec = find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            return np.loadtxt(file, delimiter=",", dtype=np.int64)
    return _from_load_digits()


def _from_load_digits() -> npt.NDArray[np.int64]:
    """The same from scikit-learn itself, wherever it keeps the file."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise DataNotFoundError(
            "the digits come with scikit-learn, which is not installed: pip install 'nscl[lab]'"
        ) from None
    bunch = load_digits()
    return np.concatenate([bunch.data, bunch.target[:, None]], axis=1).astype(np.int64)


def _every_fifth(labels: Labels) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[4::5]] = True
    return chosen
