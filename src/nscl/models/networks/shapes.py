"""Checks of the sizes that a network is built from."""

from collections.abc import Sequence

from nscl.models.errors import ModelError


def check_size(name: str, value: object, *, least: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``least``, else raise an error."""
    if type(value) is not int or value < least:
        raise ModelError(f"{name} must be an integer of at least {least}, got {value!r}")
    return value


def check_shape(image_shape: Sequence[int]) -> tuple[int, int, int]:
    """Return (channels, height, width), or raise an error that says what is wrong."""
    sizes = tuple(image_shape)
    if len(sizes) != 3:
        raise ModelError(f"image_shape must be (channels, height, width), got {sizes}")
    channels, height, width = (
        check_size(f"the {name} in image_shape", size)
        for name, size in zip(("channels", "height", "width"), sizes, strict=True)
    )
    return channels, height, width


def check_text_shape(text_shape: Sequence[int]) -> tuple[int, int]:
    """Return (length, vocabulary), or raise an error that says what is wrong."""
    sizes = tuple(text_shape)
    if len(sizes) != 2:
        raise ModelError(f"text_shape must be (length, vocabulary), got {sizes}")
    length, vocabulary = (
        check_size(f"the {name} in text_shape", size)
        for name, size in zip(("length", "vocabulary"), sizes, strict=True)
    )
    return length, vocabulary
