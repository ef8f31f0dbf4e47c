from pathlib import Path

import pytest

from nscl.data.disk.canonical import CIFAR100, FASHION_MNIST
from nscl.data.disk.locate import data_roots, locate, require
from nscl.data.errors import CorruptDataError, DataNotFoundError


def fill(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")
    return folder


def test_order_of_the_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private_cache: Path
) -> None:
    assert data_roots() == (private_cache,)
    monkeypatch.setenv("NSCL_DATA", str(tmp_path / "env"))
    assert data_roots(tmp_path / "asked") == (
        tmp_path / "asked",
        tmp_path / "env",
        private_cache,
    )
    assert data_roots(tmp_path / "env") == (tmp_path / "env", private_cache)


def test_the_first_place_wins_and_folders_precede_archives(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    fill(second / "cifar-100-python", "train", "test", "meta")
    fill(first, "cifar-100-python.tar.gz")
    found = locate(CIFAR100, (first, second))
    assert found is not None
    assert found.path == first / "cifar-100-python.tar.gz"
    fill(first / "cifar-100-python", "train", "test", "meta")
    found = locate(CIFAR100, (first, second))
    assert found is not None
    assert [path.name for path, _ in found.files] == ["train", "test", "meta"]


def test_the_folder_itself_may_be_named(tmp_path: Path) -> None:
    folder = fill(tmp_path / "cifar-100-python", "train", "test", "meta")
    found = locate(CIFAR100, (folder,))
    assert found is not None
    assert found.path == folder


def test_a_folder_of_mnist_is_not_taken_for_fashion(tmp_path: Path) -> None:
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    names = [f"{part}-ubyte" for part in parts]
    assert locate(FASHION_MNIST, (fill(tmp_path / "MNIST" / "raw", *names),)) is None
    assert locate(FASHION_MNIST, (fill(tmp_path / "FashionMNIST" / "raw", *names),)) is not None


@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_fashion_mnist_is_found_as_torchvision_leaves_it(
    tmp_path: Path, folder: str, suffix: str
) -> None:
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    fill(tmp_path / folder, *(f"{part}-ubyte{suffix}" for part in parts))
    found = locate(FASHION_MNIST, (tmp_path,))
    assert found is not None
    assert found.path == tmp_path / folder


def test_missing_says_what_where_and_how(tmp_path: Path, private_cache: Path) -> None:
    fill(tmp_path / "cifar-100-python", "train")
    with pytest.raises(DataNotFoundError) as caught:
        require(CIFAR100, "split-cifar100-10", tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "cifar-100-python/{train,test,meta} or cifar-100-python.tar.gz",
        f"{tmp_path}, {private_cache} (no such folder)",
        "lacks test, meta",
        "`nscl data fetch split-cifar100-10`",
    ):
        assert part in message


def test_wrong_bytes_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "cifar-100-python", "train", "test", "meta")
    with pytest.raises(CorruptDataError, match=r"train is corrupt.*nscl data fetch"):
        require(CIFAR100, "split-cifar100-10", tmp_path)
