"""Patches written out multiply to what torch's convolutions compute."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.core.covariance.convolution import unfold as module
from nscl.core.covariance.convolution.unfold import Geometry, Patches, unfold

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)


def loops(images: Tensor, geometry: Geometry) -> Tensor:
    """The patches by the definition: one Python loop per index."""
    padded = F.pad(images, [p for pair in reversed(geometry.padding) for p in pair])
    count, channels = images.shape[:2]
    per_group = channels // geometry.groups
    size = geometry.output_size(tuple(images.shape[2:]))
    rows = []
    for g in range(geometry.groups):
        for n, position in itertools.product(
            range(count), itertools.product(*(range(s) for s in size))
        ):
            for c, offset in itertools.product(range(per_group), geometry.offsets):
                pixel = [
                    p * s + o * d
                    for p, o, s, d in zip(
                        position, offset, geometry.stride, geometry.dilation, strict=True
                    )
                ]
                rows.append(padded[(n, g * per_group + c, *pixel)])
    features = per_group * geometry.positions
    return torch.stack(rows).reshape(geometry.groups, -1, features)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    list(itertools.product((1, 2, 3), (0, 1, 2), (1, 2), (1, 2, 4))),
)
def test_row_4_of_the_sanity_table(stride: int, padding: int, dilation: int, groups: int) -> None:
    """The unfold identity: rows times flattened weights are conv2d's outputs."""
    images = torch.randn(3, 4, 6, 5, dtype=torch.float64)
    weight = torch.randn(8, 4 // groups, 2, 3, dtype=torch.float64)
    geometry = Geometry((2, 3), (stride,) * 2, (dilation,) * 2, ((padding,) * 2,) * 2, groups)
    rows = unfold(images, geometry)
    by_rows = rows @ weight.flatten(1).unflatten(0, (groups, -1)).mT
    expected = F.conv2d(images, weight, None, stride, padding, dilation, groups)
    expected = expected.unflatten(1, (groups, -1)).permute(1, 0, 3, 4, 2).flatten(1, 3)
    assert (by_rows - expected).abs().max() < 1e-12
    theirs = F.unfold(images, (2, 3), dilation, padding, stride)
    theirs = theirs.unflatten(1, (groups, -1)).permute(1, 0, 3, 2).flatten(1, 2)
    assert torch.equal(rows, theirs)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_every_dimension_by_loops_and_by_torch(dims: int, groups: int) -> None:
    images = torch.randn(2, 4, *(5, 4, 3)[:dims], dtype=torch.float64)
    kernel, stride, dilation = (2, 3, 2)[:dims], (1, 2, 1)[:dims], (2, 1, 1)[:dims]
    around = ((1, 2), (0, 1), (1, 0))[:dims]
    geometry = Geometry(kernel, stride, dilation, around, groups)
    rows = unfold(images, geometry)
    assert torch.equal(rows, loops(images, geometry))
    weight = torch.randn(2, 4 // groups, *kernel, dtype=torch.float64)
    padded = F.pad(images, [p for pair in reversed(around) for p in pair])
    expected = CONVOLUTIONS[dims - 1](padded, weight, None, stride, 0, dilation, groups)
    assert tuple(expected.shape[2:]) == geometry.output_size(tuple(images.shape[2:]))
    by_rows = rows @ weight.flatten(1).unflatten(0, (groups, -1)).mT
    expected = expected.unflatten(1, (groups, -1)).movedim(2, -1).movedim(1, 0)
    assert torch.allclose(by_rows, expected.flatten(1, -2), atol=1e-12)


def test_few_images_at_a_time_are_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(5, 2, 4, 4, dtype=torch.float64)
    patches = Patches(images, Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))))
    whole = unfold(images, patches.geometry)
    assert patches.rows == whole.shape[1] == 5 * 16
    monkeypatch.setattr(module, "CHUNK", 2 * 18 * 16)
    chunks = list(patches.unfolded())
    assert [chunk.shape[1] for chunk in chunks] == [32, 32, 16]
    assert torch.equal(torch.cat(chunks, 1), whole)


def test_an_image_larger_than_a_chunk_is_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 1)
    patches = Patches(torch.randn(2, 1, 3), Geometry((2,), (1,), (1,), ((0, 0),)))
    assert [chunk.shape for chunk in patches.unfolded()] == [(1, 2, 2), (1, 2, 2)]
