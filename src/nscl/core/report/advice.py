"""What deserves attention in a report, in words that are true for the layers they name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nscl.core.report.layers import LayerReport
from nscl.core.report.names import in_short

LITTLE = 0.02  # a smaller free share deserves a remark
_LESS = f"less than {100 * LITTLE:.0f} %"

# The number of each rule that says how much is held, and which way frees more.
_FREES = {
    "Ratio": "a larger `a`",
    "Energy": "a larger `share`",
    "Tolerance": "a larger `rtol`",
    "Ridge": "a larger `alpha`",
    "Penalty": "a smaller `strength`",
    "Budget": "a larger `drift`",
}
_SOFT = ("Ridge", "Penalty", "Budget")


def advise(layers: Sequence[LayerReport], rule: Mapping[str, Any] | None) -> Iterator[str]:
    """Remarks on layers that can hardly learn, and on layers that are not held.

    ``rule`` is None where a projector of the user's chooses the directions.
    """
    held = [layer for layer in layers if layer.is_held]
    shrunk = [layer for layer in held if layer.dimensions is not None]
    projected = [layer for layer in held if layer.dimensions is None]
    matrices = [layer for layer in projected if not layer.tokens]
    name = str(rule["name"]) if rule else ""
    yield from _no_direction([layer for layer in matrices if layer.free < 0.5], name)
    yield from _few_directions([layer for layer in matrices if layer.free >= 0.5], name)
    yield from _known_tokens([layer for layer in projected if layer.tokens])
    yield from _few_dimensions(shrunk, name)
    yield from _nothing_held(matrices, shrunk)


def _no_direction(layers: Sequence[LayerReport], rule: str) -> Iterator[str]:
    if layers:
        move = "can hardly move" if rule in _SOFT else "cannot move at all"
        yield (
            f"0 % free: {_names(layers)}: the old data use every direction, so these weights "
            f"{move}; {_frees(rule)} frees some"
        )


def _few_directions(layers: Sequence[LayerReport], rule: str) -> Iterator[str]:
    few = [layer for layer in layers if layer.free_share < LITTLE]
    if few:
        yield (
            f"{_LESS} free: {_names(few)}: the old data use nearly every "
            f"direction, so little can be learned here; {_frees(rule)} frees more"
        )


def _known_tokens(layers: Sequence[LayerReport]) -> Iterator[str]:
    known = [layer for layer in layers if layer.free_share < LITTLE]
    if known:
        none = all(layer.free == 0 for layer in known)
        yield (
            f"{'no token' if none else f'{_LESS} of the tokens'} free: {_names(known)}: the old "
            "data contain the others, and this rule holds their rows whatever its number; Penalty "
            "and Budget let them move"
        )


def _few_dimensions(layers: Sequence[LayerReport], rule: str) -> Iterator[str]:
    few = [layer for layer in layers if layer.free_share < LITTLE]
    if few:
        yield (
            f"{_LESS} free: {_names(few)}: the old data use nearly every "
            f"dimension, so nearly every movement is shrunk; {_frees(rule)} shrinks it less"
        )


def _nothing_held(matrices: Sequence[LayerReport], shrunk: Sequence[LayerReport]) -> Iterator[str]:
    full = [layer for layer in matrices if layer.free >= layer.features]
    if full:
        yield (
            f"100 % free: {_names(full)}: nothing is held here; either the old data never "
            "reach these layers' inputs, or the rule is too generous for their spectrum"
        )
    loose = [layer for layer in shrunk if layer.free_share >= 1.0]
    if loose:
        yield (
            f"100 % free: {_names(loose)}: nothing is held here; the old data never reach these "
            "layers' inputs, or the old loss does not depend on their outputs"
        )


def _frees(rule: str) -> str:
    return f"{_FREES[rule]} in {rule}" if rule in _FREES else "a more generous rule or projector"


def _names(layers: Sequence[LayerReport]) -> str:
    return in_short([layer.name for layer in layers])
