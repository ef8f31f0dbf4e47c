"""One picture file to uint8 RGB pixels of a given size, whatever pillow can open."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from nscl.data.errors import CorruptDataError
from nscl.data.readers.raw import Pixels

_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini"})


def picture_files(folder: Path) -> list[Path]:
    """Return every file under ``folder`` in sorted order, without hidden and system files."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.name.startswith(".")
        and path.name.lower() not in _SYSTEM_FILES
    )


def decode_picture(
    source: Path | bytes, *, name: str | Path, size: tuple[int, int] | None = None
) -> Pixels:
    """Decode to ``[3, height, width]``; with ``size`` = (height, width) scaled and cropped to it.

    The picture keeps its proportions: it is scaled until it covers the size, then cropped around
    its centre. It is turned as its EXIF data ask; what is transparent becomes white. ``name`` is
    for messages.
    """
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            if size is not None:
                # JPEGs can be decoded at 1/2, 1/4, 1/8: much faster for photographs.
                image.draft("RGB", (2 * max(size), 2 * max(size)))
            upright = to_rgb(ImageOps.exif_transpose(image))
            fitted = upright if size is None else _cover(upright, size)
            return np.asarray(fitted).transpose(2, 0, 1)
    except Exception as error:
        # What Pillow raises depends on the file and on the plugin of its format.
        raise CorruptDataError(
            f"{name} cannot be decoded as a picture ({_reason(error)}); remove it or replace it"
        ) from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Return the picture in 8-bit RGB, whatever its mode."""
    if image.mode == "F":
        raise ValueError("32-bit float pixels; convert it to 8 bits")
    if image.mode.startswith("I"):
        # 16-bit grey: pillow's own conversion would clip at 255 instead of scaling.
        return Image.fromarray((np.asarray(image) // 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers)
    return image.convert("RGB")


def _cover(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    height, width = size
    if image.size == (width, height):
        return image
    return ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "no known picture format"
    return " ".join(str(error).split()) or type(error).__name__
