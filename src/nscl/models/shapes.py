"""Checks of the sizes a model is built from."""

from collections.abc import Sequence

from nscl.models.errors import ModelError


def check_size(name: str, value: object, *, least: int = 1) -> int:
    """Return ``value`` if it is a whole number from ``least`` on; else say what it should be."""
    if type(value) is not int or value < least:
        raise ModelError(f"{name} must be a whole number from {least} on, got {value!r}")
    return value


def check_shape(image_shape: Sequence[int]) -> tuple[int, int, int]:
    """Return (channels, height, width), or say what is wrong with them."""
    sizes = tuple(image_shape)
    if len(sizes) != 3:
        raise ModelError(f"image_shape must be (channels, height, width), got {sizes}")
    channels, height, width = (
        check_size(f"the {name} in image_shape", size)
        for name, size in zip(("channels", "height", "width"), sizes, strict=True)
    )
    return channels, height, width
