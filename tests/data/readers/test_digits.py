import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from nscl.data.errors import DataNotFoundError
from nscl.data.readers import digits
from nscl.data.readers.digits import read_digits


def original() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits  # slow: not while tests are collected

    bunch = load_digits()
    return np.rint(bunch.images * 255 / 16).astype(np.uint8), bunch.target


def test_every_digit_is_there_once_and_classes_are_shared_out_evenly() -> None:
    raw = read_digits()
    images, labels = original()
    assert len(raw.train_labels) + len(raw.test_labels) == 1797
    assert raw.class_names == tuple("0123456789")
    for label in range(10):
        total = int((labels == label).sum())
        assert int((raw.test_labels == label).sum()) == total // 5
    together = np.concatenate([raw.train_images, raw.test_images]).reshape(1797, -1)
    assert sorted(map(bytes, together)) == sorted(map(bytes, images.reshape(1797, -1)))
    assert (together.max(), together.min()) == (255, 0)


def test_the_split_is_the_same_every_time() -> None:
    first, second = read_digits(), read_digits()
    np.testing.assert_array_equal(first.test_images, second.test_images)
    # The fifth zero of the file is the first test image: a change of the rule must be noticed.
    images, labels = original()
    zeros = images[labels == 0]
    np.testing.assert_array_equal(first.test_images[first.test_labels == 0][0, 0], zeros[4])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_pictures_are_those_of_scikit_learn_in_its_order(
    elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it keeps its file elsewhere."""
    if elsewhere:
        spec = SimpleNamespace(submodule_search_locations=["nowhere"])
        monkeypatch.setattr(digits, "find_spec", lambda _: spec)
    raw = read_digits()
    images, labels = original()
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[4::5]] = True
    np.testing.assert_array_equal(raw.train_images[:, 0], images[~test])
    np.testing.assert_array_equal(raw.test_images[:, 0], images[test])
    np.testing.assert_array_equal(raw.train_labels, labels[~test])
    np.testing.assert_array_equal(raw.test_labels, labels[test])


def test_scikit_learn_is_not_imported_for_its_file() -> None:
    code = (
        "import sys\n"
        "from nscl.data.readers.digits import read_digits\n"
        "assert len(read_digits().test_labels) > 300\n"
        "assert 'sklearn' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_scikit_learn_the_error_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digits, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataNotFoundError, match=r"pip install 'nscl\[lab\]'"):
        read_digits()
