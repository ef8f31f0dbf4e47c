"""What a layer sees in one call: rows of features, patches of images, or token ids."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from nscl.core.covariance.convolution.unfold import Patches


@dataclass(frozen=True)
class InputRows:
    """Feature rows ``[groups, rows, features]`` of one call of a layer."""

    values: Tensor
    shape: tuple[int, ...] | None = None  # of the call's rows before they were flattened
    # Where a layer sorts its rows: which of the call's rows each one is, −1 where it only fills up.
    sources: Tensor | None = None  # [groups, rows]
    count: int | None = None  # how many rows the call had, if not all of ``values``

    @classmethod
    def of(cls, given: Tensor) -> Self:
        """The rows of what a layer was given, ``[..., features]``.

        >>> InputRows.of(torch.zeros(2, 3, 4)).values.shape
        torch.Size([1, 6, 4])
        """
        return cls(given.reshape(1, -1, given.shape[-1]), tuple(given.shape[:-1]))

    @property
    def rows(self) -> int:
        """How many rows the call had."""
        return self.values.shape[1] if self.count is None else self.count

    def only(self, real: Tensor) -> "InputRows":
        """The rows that count; sorted ones stay where they are, and those that do not become 0."""
        here = real.to(self.values.device)
        if self.sources is None:
            return InputRows(self.values[:, here])
        counts = torch.cat([here, here.new_zeros(1)])[self.sources]
        return replace(self, values=self.values * counts[..., None], count=int(here.sum()))


@dataclass(frozen=True)
class TokenIds:
    """Indices looked up by one call of an embedding, and what each row was multiplied by."""

    ids: Tensor
    factor: Tensor | None = None


Observation = InputRows | Patches | TokenIds


def selected(seen: Observation, real: Tensor | None) -> Iterator[Observation]:
    """What is left of a call where only some of its rows count (``real``, one bool per row).

    Patches are then written out as rows, some images at a time.
    """
    if real is None or (isinstance(seen, Patches) and bool(real.all())):
        yield seen
    elif isinstance(seen, InputRows):
        yield seen.only(real)
    elif isinstance(seen, TokenIds):
        here = real.to(seen.ids.device)
        factor = None if seen.factor is None else seen.factor.reshape(-1)[here]
        yield TokenIds(seen.ids.reshape(-1)[here], factor)
    else:
        start = 0
        for rows in seen.unfolded():
            part = real[start : start + rows.shape[1]].to(rows.device)
            start += rows.shape[1]
            yield InputRows(rows[:, part])


def averaged(seen: Observation) -> Observation:
    """The mean over a batch, as the authors' script takes it: maps keep their positions."""
    if isinstance(seen, Patches):
        return Patches(seen.images.mean(0, keepdim=True), seen.geometry)
    return InputRows(seen.values.mean(1, keepdim=True)) if isinstance(seen, InputRows) else seen


class TokenCounter:
    """Counts how often each token of an embedding was looked up, by the square of its factor."""

    def __init__(self, features: int) -> None:
        self._counts = torch.zeros(features, dtype=torch.float64, device="cpu")
        self.rows = 0
        self.noise = 0.0

    def add(self, seen: Observation, constant: int | None) -> bool:
        """Add one call; an embedding has no bias."""
        if not isinstance(seen, TokenIds):
            raise TypeError("an embedding is fed tokens: a block has one layout")
        ids = seen.ids.reshape(-1).cpu()
        squares = None if seen.factor is None else seen.factor.reshape(-1).double().square().cpu()
        self._counts += torch.bincount(ids, squares, minlength=len(self._counts)).double()
        self.rows += ids.numel()
        return True

    def total(self) -> Tensor:
        """The counts."""
        return self._counts
