import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from nscl.data.errors import DataError
from nscl.data.streams import Split, measure_mean_std, stream_from_datasets


def labelled(labels: list[int], size: int = 4) -> TensorDataset:
    """Image i is filled with the number i, so that it can be recognised later."""
    images = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1)
    return TensorDataset(images.repeat(1, 3, size, size), torch.tensor(labels))


TRAIN = labelled([30, 10, 20, 40, 10, 20, 30, 40, 40])
TEST = labelled([10, 20, 30, 40])


def test_classes_images_and_labels_stay_together() -> None:
    stream = stream_from_datasets(TRAIN, TEST, tasks=2, order="random", seed=3)
    seen = []
    for task in stream:
        for split, dataset in ((task.train, TRAIN), (task.test, TEST)):
            for image, label in zip(split.images, split.labels, strict=True):
                original, target = dataset[int(image[0, 0, 0])]
                assert image.equal(original)
                assert task.classes[label] == target
            seen.append(len(split))
    assert sum(seen[::2]) == len(TRAIN)
    assert sum(seen[1::2]) == len(TEST)


def test_defaults() -> None:
    stream = stream_from_datasets(TRAIN, TEST, tasks=2)
    assert [task.classes for task in stream] == [(10, 20), (30, 40)]
    assert [task.name for task in stream] == ["10, 20", "30, 40"]
    assert (stream.scenario, stream.augment, stream.name) == ("task", "none", "custom")
    pixels = stream[0].train.images.double() / 255
    assert stream.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert stream.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist())


def test_every_setting_can_be_given() -> None:
    stream = stream_from_datasets(
        TRAIN,
        TEST,
        tasks=1,
        class_names=list("abcd"),
        scenario="domain",
        mean=(0.1, 0.2, 0.3),
        std=(1, 2, 3),
        augment="crop-flip",
        size=8,
        name="mine",
    )
    assert stream[0].name == "a … d"
    assert stream.image_shape == (3, 8, 8)
    assert (stream.mean, stream.std) == ((0.1, 0.2, 0.3), (1, 2, 3))


class Pictures(Dataset[tuple[np.ndarray, int, str]]):
    """Items may have more than two parts and any size."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, str]:
        side = self.sizes[index]
        return np.zeros((side, side, 3), dtype=np.uint8), index % 2, "extra"


def test_different_sizes_need_a_size() -> None:
    pictures = Pictures([4, 4, 5, 6])
    with pytest.raises(DataError, match=r"item 2 of the training dataset has shape .* size=N"):
        stream_from_datasets(pictures, pictures, tasks=2)
    assert stream_from_datasets(pictures, pictures, tasks=2, size=7).image_shape == (3, 7, 7)


def test_wrong_datasets_are_refused() -> None:
    with pytest.raises(DataError, match=r"same classes: \[40\]"):
        stream_from_datasets(TRAIN, labelled([10, 20, 30]), tasks=1)
    with pytest.raises(DataError, match="the test dataset is empty"):
        stream_from_datasets(TRAIN, Pictures([]), tasks=1)
    with pytest.raises(DataError, match="4 classes but 1 class_names"):
        stream_from_datasets(TRAIN, TEST, tasks=1, class_names=["a"])
    with pytest.raises(DataError, match="choose a number of tasks from 1, 2, 4"):
        stream_from_datasets(TRAIN, TEST, tasks=3)


def test_a_constant_channel_does_not_divide_by_zero() -> None:
    constant = Split(torch.full((5, 1, 2, 2), 51, dtype=torch.uint8), torch.zeros(5).long())
    assert measure_mean_std(constant) == (pytest.approx((0.2,)), pytest.approx((1 / 255,)))
