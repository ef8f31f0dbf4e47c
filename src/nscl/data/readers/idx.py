"""The idx format of the MNIST family, plain or gzipped, and Fashion-MNIST in it.

Format: two zero bytes, a type code (8 = unsigned byte), the number of dimensions, the dimensions as
big-endian 32-bit integers, then the values (Y. LeCun's description of the MNIST files).
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from nscl.data.errors import CorruptDataError
from nscl.data.readers.raw import Labels, Pixels, RawDataset

FASHION_CLASSES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


def read_idx(path: Path) -> Pixels:
    """Read one idx or idx.gz file of unsigned bytes."""
    content = _content(path)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise CorruptDataError(f"{path} is not an idx file of unsigned bytes")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    if len(content) - start != math.prod(shape):
        raise CorruptDataError(
            f"{path} is truncated: its {len(content):,} bytes are not the {shape} it announces"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_fashion_mnist(folder: Path) -> RawDataset:
    """Read Fashion-MNIST from the folder with its four files, gzipped or not."""
    train, test = _pair(folder, "train"), _pair(folder, "t10k")
    return RawDataset(*train, *test, FASHION_CLASSES)


def _pair(folder: Path, part: str) -> tuple[Pixels, Labels]:
    images = read_idx(_either(folder / f"{part}-images-idx3-ubyte"))
    labels = read_idx(_either(folder / f"{part}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1] or labels.max(initial=0) > 9:
        raise CorruptDataError(
            f"the {part} files in {folder} do not fit: images {images.shape}, labels {labels.shape}"
        )
    return images[:, None], labels.astype(np.int64)


def _either(path: Path) -> Path:
    """Prefer the gzipped file: it is the one whose checksum was verified."""
    zipped = path.with_name(f"{path.name}.gz")
    return zipped if zipped.exists() else path


def _content(path: Path) -> bytes:
    raw = path.read_bytes()
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptDataError(f"{path} is truncated or not gzip ({error})") from None
