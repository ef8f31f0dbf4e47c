"""Full precision whatever the surroundings allow: no autocast, no shortened matrix products.

Training can do with three digits, holding old outputs cannot. So wherever something is multiplied
that holds them, autocast is off and TF32 (or bfloat16) inside of float32 products too.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

# From torch 2.9 on every backend has a setting of its own; before, one holds for all of them.
_BACKENDS: list[Any] = [
    backend
    for backend in (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
    if hasattr(backend, "fp32_precision")
]
_EXACT = {"none", "ieee"}


@contextmanager
def full_precision(*kinds: str) -> Iterator[None]:
    """Multiply exactly on these kinds of devices; afterwards all settings are as they were.

    >>> with torch.autocast("cpu"), full_precision("cpu"):
    ...     torch.ones(2, 2) @ torch.ones(2)
    tensor([2., 2.])
    """
    cast, exact = [kind for kind in kinds if _is_cast(kind)], _is_exact()
    if exact and not cast:  # as nearly always: a step has no time to lose
        yield
        return
    with ExitStack() as stack:
        for kind in cast:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if not exact:
            stack.enter_context(_whole_products())
        yield


def _is_cast(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _is_exact() -> bool:
    if not _BACKENDS:
        return torch.get_float32_matmul_precision() == "highest"
    return _EXACT.issuperset([backend.fp32_precision for backend in _BACKENDS])


@contextmanager
def _whole_products() -> Iterator[None]:
    common, each = _common(), [backend.fp32_precision for backend in _BACKENDS]
    try:
        _choose(common and "highest", ["ieee"] * len(each))
        yield
    finally:
        _choose(common, each)


def _common() -> str | None:
    """The older setting for all backends; torch has no answer where they were set apart."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _choose(common: str | None, each: Sequence[str]) -> None:
    """Set both ways alike: torch refuses to read the older one where it contradicts the newer."""
    if common is not None:
        torch.set_float32_matmul_precision(common)
    for backend, precision in zip(_BACKENDS, each, strict=True):
        backend.fp32_precision = "none"  # what follows torch.backends.fp32_precision goes on to
        if backend.fp32_precision != precision:
            backend.fp32_precision = precision
