"""The public data sets as facts: what their files are called, their MD5s, where they come from.

MD5s and addresses are those torchvision publishes (its ``datasets/cifar.py`` and ``mnist.py``) and,
for TinyImageNet, those of avalanche's ``tiny_imagenet.py``. Means and standard deviations: those of
the Adam-NSCL authors' code (``dataloaders/base.py``) for CIFAR-100 and TinyImageNet (ImageNet's),
the usual published ones for CIFAR-10 and Fashion-MNIST, measured for the digits.
"""

from dataclasses import dataclass
from typing import Literal

AugmentName = Literal["none", "crop-flip"]


@dataclass(frozen=True)
class Form:
    """One shape in which people have a data set: an archive, or a folder with these files."""

    path: str
    md5: str | None = None
    files: tuple[tuple[str, str | None], ...] = ()

    def __str__(self) -> str:
        names = ",".join(name for name, _ in self.files)
        return f"{self.path}/{{{names}}}" if names else self.path


@dataclass(frozen=True)
class Download:
    """A published file and the place under the data folder where it belongs."""

    url: str
    path: str
    md5: str
    size: int


@dataclass(frozen=True)
class Dataset:
    """A data set's published facts; ``forms`` in the order in which they are looked for."""

    name: str
    title: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: AugmentName
    forms: tuple[Form, ...] = ()
    downloads: tuple[Download, ...] = ()


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
_CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
_TINY = "tiny-imagenet-200"
_TINY_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_FASHION_FILES = (
    ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
    ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
    ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
    ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
)
_FASHION_GZ = tuple((f"{name}.gz", md5) for name, md5, _ in _FASHION_FILES)
_FASHION_RAW = tuple((name, None) for name, _, _ in _FASHION_FILES)
_FASHION_FOLDERS = ("fashion-mnist", "FashionMNIST/raw")

DIGITS = Dataset("digits", "scikit-learn's digits", (0.3053,), (0.3760,), "none")

CIFAR10 = Dataset(
    "cifar10",
    "CIFAR-10",
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
    "crop-flip",
    forms=(
        Form(
            "cifar-10-batches-py",
            files=(
                ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
                ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
                ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
                ("data_batch_4", "634d18415352ddfa80567beed471001a"),
                ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
                ("test_batch", "40351d587109b95175f43aff81a1287e"),
                ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
            ),
        ),
        Form("cifar-10-python.tar.gz", _CIFAR10_MD5),
    ),
    downloads=(
        Download(
            _CIFAR + "cifar-10-python.tar.gz", "cifar-10-python.tar.gz", _CIFAR10_MD5, 170_498_071
        ),
    ),
)

CIFAR100 = Dataset(
    "cifar100",
    "CIFAR-100",
    (0.507, 0.487, 0.441),
    (0.267, 0.256, 0.276),
    "crop-flip",
    forms=(
        Form(
            "cifar-100-python",
            files=(
                ("train", "16019d7e3df5f24257cddd939b257f8d"),
                ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
                ("meta", "7973b15100ade9c7d40fb424638fde48"),
            ),
        ),
        Form("cifar-100-python.tar.gz", _CIFAR100_MD5),
    ),
    downloads=(
        Download(
            _CIFAR + "cifar-100-python.tar.gz",
            "cifar-100-python.tar.gz",
            _CIFAR100_MD5,
            169_001_437,
        ),
    ),
)

TINYIMAGENET = Dataset(
    "tinyimagenet",
    "TinyImageNet-200",
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
    "crop-flip",
    forms=(
        Form(_TINY, files=(("train", None), ("val", None))),
        Form(f"{_TINY}.zip", _TINY_MD5),
        *(Form(f"{_TINY}.{suffix}") for suffix in ("tar", "tar.gz", "tgz", "tar.xz")),
    ),
    downloads=(
        Download(f"http://cs231n.stanford.edu/{_TINY}.zip", f"{_TINY}.zip", _TINY_MD5, 248_100_043),
    ),
)

FASHION_MNIST = Dataset(
    "fashion-mnist",
    "Fashion-MNIST",
    (0.2860,),
    (0.3530,),
    "none",
    # gz first: only those have published MD5s, and torchvision leaves both side by side.
    forms=tuple(
        Form(folder, files=files)
        for files in (_FASHION_GZ, _FASHION_RAW)
        for folder in _FASHION_FOLDERS
    ),
    downloads=tuple(
        Download(f"{_FASHION}{name}.gz", f"fashion-mnist/{name}.gz", md5, size)
        for name, md5, size in _FASHION_FILES
    ),
)

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (DIGITS, CIFAR10, CIFAR100, TINYIMAGENET, FASHION_MNIST)
}
