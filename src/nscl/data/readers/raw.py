"""What every reader returns: uint8 images with labels 0..K-1, in training and test parts."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RawDataset:
    """Images ``[N, C, H, W]`` and labels as numpy arrays, which may be read-only."""

    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels
    class_names: tuple[str, ...]
    note: str = ""
