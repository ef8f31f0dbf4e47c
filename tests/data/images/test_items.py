import numpy as np
import pytest
import torch
from PIL import Image

from nscl.data.errors import DataError
from nscl.data.images.items import label_of, pixels_of

PIXELS = torch.arange(24, dtype=torch.uint8).view(2, 3, 4) * 10


def test_tensors_arrays_and_pictures_agree() -> None:
    colour = PIXELS.repeat(2, 1, 1)[:3]
    array = colour.permute(1, 2, 0).numpy()
    for image in (colour, colour.float() / 255, array, array / 255, Image.fromarray(array)):
        assert pixels_of(image, where="x").equal(colour)
    grey = PIXELS[0]
    for image in (grey, grey[None], grey.numpy(), Image.fromarray(grey.numpy())):
        assert pixels_of(image, where="x").equal(grey[None])
    palette = Image.fromarray(array).convert("P", palette=Image.Palette.ADAPTIVE)
    truth = torch.from_numpy(np.array(palette.convert("RGB"))).permute(2, 0, 1)
    assert pixels_of(palette, where="x").equal(truth)
    assert pixels_of(grey > 40, where="x").unique().tolist() == [0, 255]


@pytest.mark.parametrize(
    ("image", "complaint"),
    [
        (PIXELS.float(), r"outside 0\.\.1; pass images that are not normalised"),
        (torch.full((1, 2, 2), torch.nan), r"outside 0\.\.1"),
        (PIXELS.int(), "int32 pixels"),
        (PIXELS.view(-1), r"shape \[24\]"),
        ("picture.png", "type str"),
    ],
)
def test_what_is_no_image_is_refused(image: object, complaint: str) -> None:
    with pytest.raises(DataError, match=f"item 3 has .*{complaint}"):
        pixels_of(image, where="item 3")


def test_labels() -> None:
    for label in (3, torch.tensor(3), np.int64(3), np.array([3])):
        assert label_of(label, where="x") == 3
    for wrong in ("cat", 3.0, True, torch.tensor([1, 2]), None):
        with pytest.raises(DataError, match="labels must be integers"):
            label_of(wrong, where="x")
