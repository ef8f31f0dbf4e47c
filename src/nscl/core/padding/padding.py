"""The padding of one batch: which rows of every layer and of the output count.

A model that reads one sequence and writes another has two masks. Its encoder, and every layer that
is given the encoder's own output, goes by the first; all others go by the second.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from nscl.core.capture.batch import tensors_in
from nscl.core.covariance.convolution.unfold import Patches
from nscl.core.covariance.observations import Observation, TokenIds
from nscl.core.padding.real_rows import after_convolution, has_batch, real_rows
from nscl.errors import FeatureError


class Padding:
    """Masks ``[batch, positions]`` of one batch, True where a position is real.

    ``second`` is that of the sequence which a model with an encoder writes.
    """

    def __init__(
        self, first: Tensor | None, second: Tensor | None, *, samples: int, fits: bool
    ) -> None:
        self.first, self.second, self.samples = first, second, samples
        self._fits = fits  # whether a mask has the shape of anything so far
        self._is_full = all(bool(mask.all()) for mask in self.masks)
        self._passed_on: dict[tuple[int, int], Tensor] = {}  # masks behind convolutions
        self._met: tuple[int, ...] | None = None
        self._inside_encoder = False
        self._encoded: set[int] = set()  # where the encoder's outputs are in memory

    @property
    def masks(self) -> list[Tensor]:
        """One mask or two."""
        return [mask for mask in (self.first, self.second) if mask is not None]

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Know during a forward pass which layers see the encoder's side."""
        encoder = None if self.second is None else encoder_of(model)
        with ExitStack() as stack:
            if encoder is not None:
                enter = encoder.register_forward_pre_hook(self._enter)
                leave = encoder.register_forward_hook(self._leave, always_call=True)
                stack.callback(enter.remove)
                stack.callback(leave.remove)
            yield

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._inside_encoder = True

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._inside_encoder = False
        self._encoded |= {t.untyped_storage().data_ptr() for t in tensors_in(output)}

    def real(self, seen: Observation) -> Tensor | None:
        """Which rows of one call of a layer count; None if all do."""
        shape = _leading(seen)
        self._met = self._met or shape
        if isinstance(seen, Patches):
            found = self._first(seen.images, shape, lambda mask: self._of_patches(mask, seen))
        else:
            ids = seen.ids if isinstance(seen, TokenIds) else None
            given = seen.ids if isinstance(seen, TokenIds) else seen.values
            found = self._first(given, shape, lambda mask: real_rows(mask, shape, ids))
        return None if self._is_full else found

    def rows(self, output: Tensor) -> Tensor | None:
        """The rows ``[rows, features]`` of a tensor of the output, if a mask has its shape."""
        shape = tuple(output.shape[:-1])
        found = self._first(output, shape, lambda mask: real_rows(mask, shape))
        return None if found is None else output.flatten(0, -2)[found.to(output.device)]

    def _first(
        self, given: Tensor, shape: tuple[int, ...], match: Callable[[Tensor], Tensor | None]
    ) -> Tensor | None:
        for mask in (*self._order(given), *self._passed_on.values()):
            found = match(mask)
            if found is not None:
                self._fits |= has_batch(mask, shape)
                return found
        return None

    def _order(self, given: Tensor) -> list[Tensor]:
        is_encoded = self._encoded and given.untyped_storage().data_ptr() in self._encoded
        if self._inside_encoder or is_encoded:
            return [] if self.first is None else [self.first]
        return self.masks[::-1]

    def _of_patches(self, mask: Tensor, seen: Patches) -> Tensor | None:
        images = seen.images
        if images.ndim != 3 or (len(images), images.shape[2]) != tuple(mask.shape):
            return None
        behind = after_convolution(mask, seen.geometry)
        self._passed_on[len(behind), behind.shape[1]] = behind
        return behind.reshape(-1)

    def check(self, batch: int) -> None:
        """Refuse a mask that has the shape of nothing."""
        if not self._fits and self._met is not None:
            shapes = " and ".join(str(tuple(mask.shape)) for mask in self.masks)
            raise FeatureError(
                f"the mask of batch {batch} has the shape {shapes}, but the first layer was given "
                f"{self._met}: a mask is [batch, positions], 1 where a position is real"
            )


def _leading(seen: Observation) -> tuple[int, ...]:
    """The shape of what a layer was given without its features; images have them inside."""
    if isinstance(seen, Patches):
        return tuple(seen.images.shape)
    if isinstance(seen, TokenIds):
        return tuple(seen.ids.shape)
    return (seen.values.shape[1],) if seen.shape is None else seen.shape


def encoder_of(model: nn.Module) -> nn.Module | None:
    """The part of a model that reads the first of two sequences."""
    getter = getattr(model, "get_encoder", None)
    found = getter() if callable(getter) else None
    if isinstance(found, nn.Module) and found is not model:
        return found
    named = (m for name, m in model.named_modules() if name.rpartition(".")[2] == "encoder")
    return next(named, None)
