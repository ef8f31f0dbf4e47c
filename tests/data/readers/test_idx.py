import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nscl.data.errors import CorruptDataError
from nscl.data.readers.idx import read_fashion_mnist, read_idx


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_pair(
    folder: Path, part: str, count: int, *, zipped: bool
) -> tuple[np.ndarray, list[int]]:
    images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = np.arange(count) % 10
    for name, array in (
        (f"{part}-images-idx3-ubyte", images),
        (f"{part}-labels-idx1-ubyte", labels),
    ):
        content = idx(array)
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
    return images, labels.tolist()


@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist_files(tmp_path: Path, zipped: bool) -> None:
    train, labels = write_pair(tmp_path, "train", 50, zipped=zipped)
    test, _ = write_pair(tmp_path, "t10k", 20, zipped=zipped)
    raw = read_fashion_mnist(tmp_path)
    np.testing.assert_array_equal(raw.train_images, train[:, None])
    np.testing.assert_array_equal(raw.test_images, test[:, None])
    assert raw.train_labels.tolist() == labels
    assert raw.class_names[9] == "ankle boot"


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 40))
def test_only_whole_files_are_read(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], cut: int
) -> None:
    path = tmp_path_factory.mktemp("idx") / "file"
    array = np.arange(int(np.prod(shape))).reshape(shape) % 256
    path.write_bytes(idx(array))
    np.testing.assert_array_equal(read_idx(path), array)
    if cut:
        path.write_bytes(idx(array)[:-cut])
        with pytest.raises(CorruptDataError, match=str(path)):
            read_idx(path)


def test_truncated_gzip_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (9, 9))))[:-20])
    with pytest.raises(CorruptDataError, match="truncated or not gzip"):
        read_idx(path)
    path.write_bytes(b"hello there, I am text")
    with pytest.raises(CorruptDataError, match="not an idx file"):
        read_idx(path)


def test_images_and_labels_must_fit(tmp_path: Path) -> None:
    write_pair(tmp_path, "train", 50, zipped=False)
    write_pair(tmp_path, "t10k", 20, zipped=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(19)))
    with pytest.raises(CorruptDataError, match=r"t10k files .* do not fit"):
        read_fashion_mnist(tmp_path)
