"""Parts of error messages: the nearest known name, and somebody else's error in one line."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the known name nearest to ``name``, or nothing.

    >>> did_you_mean("resnet-18", ["mlp", "resnet18"])
    " (did you mean 'resnet18'?)"
    """
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def one_line(error: Exception) -> str:
    """Say the kind and the text of ``error`` without its line breaks."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
