"""Batched augmentation against the obvious way, image by image."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nscl.data.errors import DataError
from nscl.data.images.augment import CropFlip, apply_crop_flip, crop_flip, draw_crop_flip, normalise


def slow_crop_flip(images: torch.Tensor, draw: CropFlip) -> torch.Tensor:
    result = torch.empty_like(images)
    _, channels, height, width = images.shape
    pad = draw.padding
    for index, image in enumerate(images):
        padded = torch.zeros(channels, height + 2 * pad, width + 2 * pad, dtype=images.dtype)
        padded[:, pad : pad + height, pad : pad + width] = image
        top, left = int(draw.rows[index]), int(draw.columns[index])
        window = padded[:, top : top + height, left : left + width]
        result[index] = window.flip(-1) if draw.mirrored[index] else window
    return result


@settings(deadline=None)
@given(
    st.integers(0, 9), st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9),
    st.integers(0, 5), st.integers(0, 2**31),
)  # fmt: skip
def test_crop_flip_equals_the_slow_truth(
    count: int, channels: int, height: int, width: int, padding: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, channels, height, width), generator=generator)
    images = images.to(torch.uint8)
    draw = draw_crop_flip(count, padding=padding, generator=generator)
    result = apply_crop_flip(images, draw)
    assert result.dtype == torch.uint8
    assert result.equal(slow_crop_flip(images, draw))


def test_crop_flip_is_its_generators(generator: torch.Generator) -> None:
    images = torch.randint(0, 256, (16, 3, 8, 8), dtype=torch.uint8)
    state = generator.get_state()
    first = crop_flip(images, generator=generator)
    second = crop_flip(images, generator=generator)
    assert not first.equal(second)
    before = torch.get_rng_state()
    assert crop_flip(images, generator=generator.set_state(state)).equal(first)
    assert torch.get_rng_state().equal(before), "the global generator is left alone"


def test_draws_are_uniform(generator: torch.Generator) -> None:
    draw = draw_crop_flip(90_000, padding=4, generator=generator)
    for offsets in (draw.rows, draw.columns):
        counts = torch.bincount(offsets, minlength=9)
        assert len(counts) == 9
        # 5 standard deviations of a binomial count with p = 1/9
        assert (counts - 10_000).abs().max() < 5 * (90_000 / 9 * 8 / 9) ** 0.5
    assert abs(draw.mirrored.float().mean().item() - 0.5) < 5 * 0.5 / 90_000**0.5


def test_a_draw_for_another_batch_is_refused(generator: torch.Generator) -> None:
    images = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    with pytest.raises(DataError, match="for 3 images, the batch has 4"):
        apply_crop_flip(images, draw_crop_flip(3, generator=generator))


def test_normalise_is_the_formula() -> None:
    images = torch.randint(0, 256, (4, 3, 5, 5), dtype=torch.uint8)
    mean, std = (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)
    shape = (1, 3, 1, 1)
    pixels = images.double() / 255
    truth = (pixels - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)
    result = normalise(images, mean, std)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), truth, rtol=1e-5, atol=1e-5)
