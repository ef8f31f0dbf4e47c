"""The 1,797 handwritten digits that come with scikit-learn, split in the same way every time.

They are the test part of the UCI "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak,
1998), 8×8 pixels with values 0..16.
"""

import numpy as np

from nscl.data.errors import MissingDataError
from nscl.data.readers.raw import RawDataset


def read_digits() -> RawDataset:
    """Read the digits; every fifth picture of each class is a test picture.

    Taking every fifth needs no random numbers, so the split is the same with every version of every
    library, and each class has its share.
    """
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise MissingDataError(
            "the digits come with scikit-learn, which is not installed: pip install 'nscl[lab]'"
        ) from None
    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    test = _every_fifth(labels)
    names = tuple(str(name) for name in bunch.target_names)
    return RawDataset(images[~test], labels[~test], images[test], labels[test], names)


def _every_fifth(
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[4::5]] = True
    return chosen
