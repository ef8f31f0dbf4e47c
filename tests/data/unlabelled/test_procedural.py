import pytest
import torch

from nscl.data.unlabelled.procedural import (
    coloured_noise,
    cutmix,
    dead_leaves,
    filtered_noise,
    fractals,
    mixup,
    polygons,
    procedural_images,
    shuffle_patches,
)

SHAPES = [(3, 32, 32), (1, 8, 8), (3, 20, 28)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("paint", [dead_leaves, polygons, coloured_noise, filtered_noise, fractals])
def test_painters_use_the_range_and_differ_between_images(paint, shape) -> None:
    images = paint(40, shape, seeded())
    assert images.shape == (40, *shape)
    assert 0 <= images.min() < 0.1
    assert 0.9 < images.max() <= 1
    assert len({image.numpy().tobytes() for image in images}) == 40
    assert images.flatten(1).std(1).median() > 0.05, "not plain surfaces"
    assert paint(40, shape, seeded()).equal(images)


def test_noise_has_its_energy_in_low_frequencies() -> None:
    spectrum = torch.fft.rfft2(coloured_noise(200, (3, 32, 32), seeded())).abs().mean((0, 1))
    assert spectrum[1:4, 1:4].mean() > 3 * spectrum[12:17, 12:17].mean()


def test_dead_leaves_have_flat_areas_and_edges() -> None:
    images = dead_leaves(50, (3, 32, 32), seeded())
    steps = (images[..., 1:] - images[..., :-1]).abs().amax(1)
    flat = (steps == 0).float().mean()
    assert 0.4 < flat < 0.98


def test_fractals_fill_the_picture_unevenly() -> None:
    """Every border is touched, and where points never come the background stays."""
    images = fractals(60, (3, 32, 32), seeded())
    ground = images.flatten(2).mode(2).values[:, :, None, None]
    drawn = (images - ground).abs().amax(1) > 0.02
    for side in (drawn[:, 0], drawn[:, -1], drawn[:, :, 0], drawn[:, :, -1]):
        assert side.any(1).float().mean() > 0.9
    covered = drawn.flatten(1).float().mean(1)
    assert 0.1 < covered.median() < 0.95
    assert covered.std() > 0.05, "no two of the same kind"


def test_every_painter_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, int] = {}
    names = ("dead_leaves", "polygons", "coloured_noise", "filtered_noise", "fractals")
    for name in names:

        def paint(count, shape, generator, name=name):
            asked[name] = count
            return torch.zeros(count, *shape)

        monkeypatch.setattr(f"nscl.data.unlabelled.procedural.{name}", paint)
    procedural_images(1000, (3, 8, 8), generator=seeded())
    assert set(asked) == set(names)
    assert sum(asked.values()) == 1000
    assert all(150 < count < 250 for count in asked.values())


def test_patches_are_moved_whole() -> None:
    images = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).repeat(20, 2, 1, 1)
    moved = shuffle_patches(images, seeded())
    original = images[0].unfold(1, 2, 2).unfold(2, 2, 2).reshape(2, 16, 4)
    for image in moved:
        patches = image.unfold(1, 2, 2).unfold(2, 2, 2).reshape(2, 16, 4)
        assert sorted(patches[0].tolist()) == sorted(original[0].tolist())
        assert patches[0].equal(patches[1]), "channels move together"
    assert len({image.numpy().tobytes() for image in moved}) == 20
    odd = torch.arange(121, dtype=torch.uint8).view(1, 1, 11, 11)
    moved = shuffle_patches(odd, seeded())
    assert sorted(moved.flatten().tolist()) == list(range(121))
    assert not moved.equal(odd)
    assert moved[..., 8:].equal(odd[..., 8:]), "what 4 does not divide stays"


def test_mixtures_come_from_the_images_only() -> None:
    values = torch.arange(0, 250, 10, dtype=torch.uint8).view(-1, 1, 1, 1)
    images = values.repeat(1, 3, 8, 8)
    for mixed in cutmix(images, seeded()):
        assert set(mixed.unique().tolist()) <= set(values.flatten().tolist())
    blended = mixup(images, seeded())
    assert blended.flatten(1).float().std(1).max() == 0
    assert not blended.equal(images)


def test_the_pool_is_the_seeds_and_of_any_size() -> None:
    for count in (0, 1, 5, 1203):
        images = procedural_images(count, (3, 16, 16), generator=seeded())
        assert images.shape == (count, 3, 16, 16)
        assert images.dtype == torch.uint8
    same = procedural_images(1203, (3, 16, 16), generator=seeded())
    assert same.equal(images)
    assert not same.equal(procedural_images(1203, (3, 16, 16), generator=seeded(1)))


def test_half_of_it_comes_from_current_images_if_there_are_some() -> None:
    # Current images whose every value is a multiple of 50: cut and shuffled copies keep that.
    current = torch.randint(0, 5, (30, 3, 8, 8), dtype=torch.uint8) * 50
    images = procedural_images(600, (3, 8, 8), generator=seeded(), current=current)
    copies = int((images % 50 == 0).flatten(1).all(1).sum())
    assert 180 <= copies <= 300
