import numpy as np
import pytest
import scipy.ndimage
import torch

from nscl.data.images.domain import permutations, rotate, rotations

IMAGES = torch.randint(0, 256, (5, 3, 6, 6), dtype=torch.uint8)


def test_permutations_move_pixels_and_lose_none() -> None:
    changes = permutations((3, 6, 6), 4, seed=1)
    results = [change(IMAGES) for _, change in changes]
    assert results[0].equal(IMAGES)
    for result in results[1:]:
        assert not result.equal(IMAGES)
        for one, other in zip(IMAGES.flatten(2), result.flatten(2), strict=True):
            # Same multiset of whole pixels: the channels move together.
            assert sorted(one.T.tolist()) == sorted(other.T.tolist())
    assert not results[1].equal(results[2])


def test_a_longer_permuted_stream_begins_like_a_shorter_one() -> None:
    short, long = permutations((3, 6, 6), 2, seed=1), permutations((3, 6, 6), 9, seed=1)
    assert short[1][1](IMAGES).equal(long[1][1](IMAGES))
    assert not short[1][1](IMAGES).equal(permutations((3, 6, 6), 2, seed=2)[1][1](IMAGES))


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_quarter_turns_are_exact(quarters: int) -> None:
    truth = torch.rot90(IMAGES, quarters, (2, 3))
    difference = (rotate(IMAGES, 90.0 * quarters).int() - truth.int()).abs()
    assert difference.max() <= 1


@pytest.mark.parametrize("shape", [(16, 16), (12, 20)])
def test_rotation_equals_scipys_inside(shape: tuple[int, int]) -> None:
    coarse = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 255
    images = torch.nn.functional.interpolate(coarse, size=shape, mode="bilinear").to(torch.uint8)
    turned = rotate(images, 30.0)
    for image, result in zip(images[:, 0], turned[:, 0], strict=True):
        truth = scipy.ndimage.rotate(image.double().numpy(), 30.0, reshape=False, order=1)
        inside = (slice(4, -4), slice(4, -4))
        assert np.abs(truth - result.numpy())[inside].max() <= 1


def test_angles_share_the_half_circle() -> None:
    names = [name for name, _ in rotations(5, seed=0)]
    angles = [float(name.removeprefix("rotated ").removesuffix("°")) for name in names]
    for place, angle in enumerate(angles):
        assert 36 * place <= angle <= 36 * (place + 1)
    assert names == [name for name, _ in rotations(5, seed=0)]
    assert names != [name for name, _ in rotations(5, seed=1)]
