from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nscl.data.errors import CorruptDataError
from nscl.data.readers.pictures import decode_picture, picture_files


def save(path: Path, array: np.ndarray, mode: str | None = None, **options: object) -> Path:
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def test_lossless_pictures_come_back_exactly(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    for suffix in ("png", "bmp", "tiff", "ppm"):
        path = save(tmp_path / f"a.{suffix}", array)
        np.testing.assert_array_equal(decode_picture(path, name=path), array.transpose(2, 0, 1))
    same = decode_picture((tmp_path / "a.png").read_bytes(), name="x", size=(9, 7))
    np.testing.assert_array_equal(same, array.transpose(2, 0, 1))


def test_a_wide_picture_keeps_its_proportions(tmp_path: Path) -> None:
    array = np.zeros((40, 120, 3), dtype=np.uint8)
    array[:, 40:80] = 255  # the middle square
    pixels = decode_picture(save(tmp_path / "a.png", array), name="a", size=(16, 16))
    assert pixels.shape == (3, 16, 16)
    assert pixels[:, :, 1:-1].min() == 255


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK", "LA", "RGBA", "YCbCr"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    grey = np.full((8, 8, 3), 255, dtype=np.uint8)
    suffix = "jpg" if mode in ("CMYK", "YCbCr") else "png"
    pixels = decode_picture(save(tmp_path / f"a.{suffix}", grey, mode), name="a", size=(4, 4))
    assert pixels.shape == (3, 4, 4)
    assert pixels.min() >= 250


def test_transparent_becomes_white_also_in_palettes(tmp_path: Path) -> None:
    array = np.zeros((4, 4, 4), dtype=np.uint8)
    array[:2, :, 3] = 255
    pixels = decode_picture(save(tmp_path / "a.png", array), name="a")
    assert (pixels[:, :2].max(), pixels[:, 2:].min()) == (0, 255)
    palette = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.save(tmp_path / "p.png", transparency=bytes([0, 255]))
    pixels = decode_picture(tmp_path / "p.png", name="p")
    assert pixels[:, 0, :].T.tolist() == [[255, 255, 255], [40, 50, 60]]


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    array = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    pixels = decode_picture(save(tmp_path / "a.png", array), name="a")
    assert pixels[0].tolist() == [[0, 1, 128, 255]]


def test_exif_orientation_is_obeyed(tmp_path: Path) -> None:
    array = np.zeros((2, 4, 3), dtype=np.uint8)
    array[0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    pixels = decode_picture(save(tmp_path / "a.png", array, exif=exif), name="a")
    np.testing.assert_array_equal(pixels[0], np.rot90(array[..., 0], -1))


@pytest.mark.parametrize("content", [b"", b"not a picture", None])
def test_what_cannot_be_decoded_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.jpg"
    if content is None:
        noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        content = save(path, noise).read_bytes()[:900]
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"broken\.jpg cannot be decoded") as info:
        decode_picture(path, name=path, size=(8, 8))
    assert "\n" not in str(info.value)


def test_float_pictures_are_refused_with_a_way_out(tmp_path: Path) -> None:
    path = save(tmp_path / "a.tiff", np.zeros((4, 4), dtype=np.float32))
    with pytest.raises(CorruptDataError, match="convert it to 8 bits"):
        decode_picture(path, name=path)


def test_hidden_and_system_files_are_no_pictures(tmp_path: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "b.png", "deep/a.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in picture_files(tmp_path)] == ["b.png", "a.png"]
