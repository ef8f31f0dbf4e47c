"""The user's cache folder: decoded data, verified checksums, the bundle of the page's scripts.

Whatever is in it can be made again, so a user may delete it at any time.
"""

from pathlib import Path

from platformdirs import user_cache_path


def cache_dir() -> Path:
    """Return the user's cache folder of nscl, which need not exist yet.

    On Linux ``$XDG_CACHE_HOME/nscl``, or ``~/.cache/nscl``.
    """
    return user_cache_path("nscl", appauthor=False)
