import subprocess
import sys

import pytest

from nscl.data.catalogue import (
    BENCHMARKS,
    find_benchmark,
    find_dataset,
    is_own,
    list_benchmarks,
    open_stream,
)
from nscl.data.disk.canonical import DATASETS
from nscl.data.errors import UnknownBenchmarkError
from nscl.errors import NsclError


def test_every_entry_says_what_it_is() -> None:
    for name, entry in BENCHMARKS.items():
        assert entry.name == name
        assert len(entry.description) > 20
        assert entry.dataset in DATASETS or is_own(name)
    assert [entry.name for entry in list_benchmarks() if entry.embedded] == [
        "split-digits-5",
        "permuted-digits",
        "rotated-digits",
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("split-cifar-100-10", "split-cifar100-10"),
        ("SPLIT-DIGITS-5", "split-digits-5"),
        ("splitdigits", "split-digits-5"),
        ("tinyimagenet-25", "split-tinyimagenet-25"),
    ],
)
def test_typos_are_answered_with_the_nearest_name(typed: str, meant: str) -> None:
    with pytest.raises(UnknownBenchmarkError, match=f"did you mean '{meant}'"):
        open_stream(typed)


def test_nonsense_is_answered_with_all_names() -> None:
    with pytest.raises(NsclError, match="known names: split-digits-5, "):
        find_benchmark("qqq")


def test_datasets_behind_names() -> None:
    assert find_dataset("split-cifar100-20") is DATASETS["cifar100"]
    assert find_dataset("cifar100") is DATASETS["cifar100"]
    with pytest.raises(UnknownBenchmarkError, match="did you mean"):
        find_dataset("cifar1000")
    with pytest.raises(UnknownBenchmarkError):
        find_dataset("folder:PATH")


def test_listing_checking_and_fetching_need_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, nscl.data, nscl.data.catalogue as c, nscl.data.disk.fetch\n"
        "assert len(c.list_benchmarks()) > 8 and nscl.data.list_benchmarks\n"
        "heavy = {'torch', 'numpy', 'PIL', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
