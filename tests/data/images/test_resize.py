import numpy as np
import pytest
import torch
from PIL import Image

from nscl.data.errors import DataError
from nscl.data.images.resize import adapt, recolour, resize


def smooth(count: int, side: int, channels: int = 3) -> torch.Tensor:
    coarse = torch.rand(count, channels, 4, 4, generator=torch.Generator().manual_seed(0)) * 255
    fine = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")
    return fine.round().to(torch.uint8)


@pytest.mark.parametrize("target", [(32, 32), (20, 28), (96, 96)])
def test_batched_resizing_equals_pillow_picture_by_picture(target: tuple[int, int]) -> None:
    images = smooth(6, 64)
    resized = resize(images, target)
    assert resized.shape == (6, 3, *target)
    for image, result in zip(images, resized, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        truth = picture.resize((target[1], target[0]), Image.Resampling.BILINEAR)
        difference = np.abs(np.asarray(truth).astype(int) - result.permute(1, 2, 0).numpy())
        assert difference.max() <= 1


def test_many_images_are_resized_in_parts_without_loss() -> None:
    images = smooth(3, 8).repeat(2000, 1, 1, 1)
    resized = resize(images, (4, 4))
    assert resized.equal(resize(images[:3], (4, 4)).repeat(2000, 1, 1, 1))


def test_colours() -> None:
    images = smooth(5, 8)
    grey = recolour(images, 1)
    weights = np.array([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)
    truth = (images.numpy() * weights).sum(1, keepdims=True)
    assert np.abs(grey.numpy() - truth).max() <= 0.51
    assert recolour(grey, 3).equal(grey.repeat(1, 3, 1, 1))
    assert recolour(images, 3) is images
    with pytest.raises(DataError, match="4 channels cannot be turned into 3"):
        recolour(images.repeat(1, 2, 1, 1)[:, :4], 3)


def test_adapt_makes_the_shape() -> None:
    assert adapt(smooth(2, 32), (1, 8, 9)).shape == (2, 1, 8, 9)
