"""Train a network on something new, without forgetting the old and without the old data."""

from nscl._version import __version__

__all__ = ["__version__"]
