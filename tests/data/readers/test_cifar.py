import hashlib
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from nscl.data.errors import CorruptDataError
from nscl.data.readers.cifar import read_cifar10, read_cifar100


def pack(folder: Path) -> Path:
    archive = folder.with_name("cifar-10-python.tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def test_folder_and_archive_give_the_same(cifar10_folder: Path) -> None:
    folder, archive = read_cifar10(cifar10_folder), read_cifar10(pack(cifar10_folder))
    assert folder.train_images.shape == (100, 3, 32, 32)
    assert folder.test_images.shape == (20, 3, 32, 32)
    assert folder.class_names == tuple(f"class{i}" for i in range(10))
    for part in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(folder, part), getattr(archive, part))


def test_pixels_are_planes_of_red_green_blue(cifar10_folder: Path) -> None:
    data = np.zeros((10, 3072), dtype=np.uint8)
    data[:, 1024 + 32 * 5 + 7] = 200  # green, row 5, column 7
    batch = {"data": data, "labels": list(range(10))}
    (cifar10_folder / "test_batch").write_bytes(pickle.dumps(batch, 4))
    images = read_cifar10(cifar10_folder).test_images
    assert images[0, 1, 5, 7] == 200
    assert images[0].sum() == 200


def test_a_hostile_member_is_refused(cifar10_folder: Path, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "was-run"),)

    (cifar10_folder / "data_batch_3").write_bytes(pickle.dumps({"data": Hostile()}))
    for source in (cifar10_folder, pack(cifar10_folder)):
        with pytest.raises(CorruptDataError, match=r"data_batch_3 was not opened.*hostile"):
            read_cifar10(source)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        ({"labels": [0]}, "no uint8 array"),
        ({"data": np.zeros((2, 3072)), "labels": [0, 1]}, "no uint8 array"),
        ({"data": np.zeros((2, 5), np.uint8), "labels": [0, 1]}, "rows of 5 values"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "no 2 labels"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 10]}, r"in 0\.\.9"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "no 2 labels"),
    ],
)
def test_a_batch_that_is_not_one_is_named(
    cifar10_folder: Path, batch: dict[str, object], complaint: str
) -> None:
    (cifar10_folder / "data_batch_2").write_bytes(pickle.dumps(batch, 4))
    with pytest.raises(CorruptDataError, match=rf"data_batch_2 has .*{complaint}"):
        read_cifar10(cifar10_folder)


def test_truncated_archives_are_named(cifar10_folder: Path) -> None:
    archive = pack(cifar10_folder)
    whole = archive.read_bytes()
    for cut in (10, len(whole) // 2):
        archive.write_bytes(whole[:cut])
        with pytest.raises(CorruptDataError, match=r"cifar-10-python.tar.gz"):
            read_cifar10(archive)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(cifar10_folder / "test_batch", "cifar-10-batches-py/test_batch")
    with pytest.raises(CorruptDataError, match=r"lacks batches.meta, data_batch_1"):
        read_cifar10(archive)


def test_the_real_cifar100(real_data: Path) -> None:
    raw = read_cifar100(real_data / "cifar-100-python")
    assert raw.train_images.shape == (50_000, 3, 32, 32)
    assert raw.test_images.shape == (10_000, 3, 32, 32)
    assert np.bincount(raw.train_labels).tolist() == [500] * 100
    assert np.bincount(raw.test_labels).tolist() == [100] * 100
    assert raw.class_names[:3] == ("apple", "aquarium_fish", "baby")
    # The published channel means of the training images.
    means = raw.train_images.mean((0, 2, 3)) / 255
    np.testing.assert_allclose(means, (0.507, 0.487, 0.441), atol=1e-3)
    plain = pickle.loads((real_data / "cifar-100-python" / "test").read_bytes(), encoding="bytes")
    np.testing.assert_array_equal(raw.test_images.reshape(10_000, -1), plain[b"data"])
    assert raw.test_labels.tolist() == plain[b"fine_labels"]
    assert hashlib.md5(raw.test_images.tobytes()).digest() == hashlib.md5(plain[b"data"]).digest()
