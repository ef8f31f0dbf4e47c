"""The public data sets as facts: their files, checksums and where they come from.

MD5s and addresses are those torchvision publishes (its ``datasets/cifar.py`` and ``mnist.py``) and,
for TinyImageNet, those of avalanche's ``tiny_imagenet.py``. Means and standard deviations: those of
the Adam-NSCL authors' code (``dataloaders/base.py``) for CIFAR-100 and TinyImageNet (ImageNet's),
the usual published ones for CIFAR-10 and Fashion-MNIST, measured for the digits. No checksums of
CLINC150 and Banking77 are published: their SHA-256 are those of the files at these addresses.
"""

from dataclasses import dataclass
from typing import Literal

AugmentName = Literal["none", "crop-flip"]


@dataclass(frozen=True)
class Form:
    """One shape in which people have a data set: an archive, or a folder with these files."""

    path: str
    checksum: str | None = None
    files: tuple[tuple[str, str | None], ...] = ()

    def __str__(self) -> str:
        names = ",".join(name for name, _ in self.files)
        return f"{self.path}/{{{names}}}" if names else self.path


@dataclass(frozen=True)
class Download:
    """A published file and the place under the data folder where it belongs."""

    url: str
    path: str
    checksum: str
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
_FASHION_GZ = tuple((f"{name}.gz", checksum) for name, checksum, _ in _FASHION_FILES)
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
        Download(f"{_FASHION}{name}.gz", f"fashion-mnist/{name}.gz", checksum, size)
        for name, checksum, size in _FASHION_FILES
    ),
)

_CLINC = "https://raw.githubusercontent.com/clinc/oos-eval/master/data/"
_CLINC_FILES = (
    (
        "data_full.json",
        "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
        2_495_390,
    ),
    ("domains.json", "b947b579d3b8e74b06f93b01083d8efaff2888b43a3e362533bd88a6e1211b3a", 3_818),
)
_BANKING = (
    "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/"
)
_BANKING_FILES = (
    ("train.csv", "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b", 839_073),
    ("test.csv", "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d", 239_961),
    ("categories.json", "53261da888122daf2d120d925458631d9619e15d82e56052e7a42e535ce32b63", 2_036),
)


def _texts(name: str, title: str, address: str, files: tuple[tuple[str, str, int], ...]) -> Dataset:
    """A data set of texts: a folder of its own name, no mean, deviation or augmentation."""
    form = Form(name, files=tuple((file, checksum) for file, checksum, _ in files))
    downloads = tuple(
        Download(address + file, f"{name}/{file}", checksum, size) for file, checksum, size in files
    )
    return Dataset(name, title, (), (), "none", (form,), downloads)


CLINC150 = _texts("clinc150", "CLINC150", _CLINC, _CLINC_FILES)
BANKING77 = _texts("banking77", "Banking77", _BANKING, _BANKING_FILES)

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        DIGITS,
        CIFAR10,
        CIFAR100,
        TINYIMAGENET,
        FASHION_MNIST,
        CLINC150,
        BANKING77,
    )
}
