import numpy as np
from sklearn.datasets import load_digits

from nscl.data.readers.digits import read_digits


def test_every_digit_is_there_once_and_classes_are_shared_out_evenly() -> None:
    raw = read_digits()
    original = load_digits()
    assert len(raw.train_labels) + len(raw.test_labels) == 1797
    for label in range(10):
        total = int((original.target == label).sum())
        assert int((raw.test_labels == label).sum()) == total // 5
    together = np.concatenate([raw.train_images, raw.test_images]).reshape(1797, -1)
    expected = np.rint(original.data * 255 / 16).astype(np.uint8)
    assert sorted(map(bytes, together)) == sorted(map(bytes, expected))
    assert (together.max(), together.min()) == (255, 0)


def test_the_split_is_the_same_every_time() -> None:
    first, second = read_digits(), read_digits()
    np.testing.assert_array_equal(first.test_images, second.test_images)
    # The fifth zero of the file is the first test image: a change of the rule must be noticed.
    zeros = load_digits().images[load_digits().target == 0]
    np.testing.assert_array_equal(
        first.test_images[first.test_labels == 0][0, 0], np.rint(zeros[4] * 255 / 16)
    )
