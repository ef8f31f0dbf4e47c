"""Parts of error messages: the nearest known name, and another library's error in one line."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Suggest the known name nearest to ``name``; ``otherwise`` if none is near.

    >>> did_you_mean("resnet-18", ["mlp", "resnet18"])
    " (did you mean 'resnet18'?)"
    >>> did_you_mean("vgg", ["mlp", "resnet18"], otherwise="; known: mlp, resnet18")
    '; known: mlp, resnet18'
    """
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else otherwise


def one_line(error: Exception) -> str:
    r"""The type and the text of ``error`` without its line breaks.

    >>> one_line(ValueError("no good,\n   at all"))
    'ValueError: no good, at all'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
