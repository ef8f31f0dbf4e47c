"""A split of texts: token ids and attention mask as tensors in memory."""

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor

from nscl.data.catalogue import Kind
from nscl.data.errors import DataError
from nscl.data.inputs import Inputs, apply, nbytes, rows, to
from nscl.data.tasks import Split

IDS, MASK = "input_ids", "attention_mask"  # the names that transformers' models take


class TextSplit(Split):
    """Texts as ``{"input_ids": int64 [N, length], "attention_mask": int64 [N, length]}``.

    The mask is 1 at the tokens of a text, which come first, and 0 at the padding after them.
    ``vocabulary`` is the number of tokens that the tokenizer knows.

    >>> ids = torch.tensor([[2, 5, 0], [2, 7, 9]])
    >>> mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    >>> split = TextSplit({"input_ids": ids, "attention_mask": mask}, torch.tensor([0, 1]),
    ...                   vocabulary=10)
    >>> split, split.select(torch.tensor([1])).labels
    (TextSplit(2 texts of up to 3 tokens), tensor([1]))
    """

    kind: ClassVar[Kind] = "texts"
    vocabulary: int

    def __init__(self, inputs: Mapping[str, Tensor], labels: Tensor, *, vocabulary: int) -> None:
        _check(inputs, labels, vocabulary)
        # The base class is frozen: this is how a frozen dataclass sets its own fields.
        object.__setattr__(self, "_inputs", dict(inputs))
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "vocabulary", vocabulary)

    def __repr__(self) -> str:
        return f"TextSplit({len(self):,} texts of up to {self.input_shape[0]} tokens)"

    @property
    def images(self) -> Tensor:
        """Raise an error: these are texts."""
        raise DataError("these are texts, not pictures: use inputs, take() or Batches")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Raise an error: texts have a length and a vocabulary."""
        raise DataError("texts have no image_shape: input_shape is (length, vocabulary)")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return (length, vocabulary)."""
        return self.inputs[IDS].shape[1], self.vocabulary

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Return token ids and mask of all texts."""
        return cast("dict[str, Tensor]", self.__dict__["_inputs"])

    @property
    def bytes(self) -> int:
        """Return the size of token ids and mask."""
        return nbytes(self.inputs)

    def take(self, indices: Tensor) -> Inputs:
        """Return token ids and mask of the texts at these indices."""
        return rows(self.inputs, indices)

    def holding(self, inputs: Inputs, labels: Tensor) -> "TextSplit":
        """Return a split of other texts in the same tokens."""
        return TextSplit(cast("dict[str, Tensor]", inputs), labels, vocabulary=self.vocabulary)

    def to(self, device: torch.device | str) -> "TextSplit":
        """Return the split on another device."""
        return self.holding(to(self.inputs, device), self.labels.to(device))


def trimmed(inputs: Inputs) -> Inputs:
    """Cut texts to the longest of them: positions beyond it are padding in every one.

    >>> ids, mask = torch.tensor([[2, 5, 0]]), torch.tensor([[1, 1, 0]])
    >>> trimmed({"input_ids": ids, "attention_mask": mask})["input_ids"]
    tensor([[2, 5]])
    """
    if not isinstance(inputs, dict) or MASK not in inputs:
        return inputs
    mask = inputs[MASK]
    longest = int(mask.sum(1).max()) if len(mask) else 0
    return apply(lambda tensor: tensor[:, :longest], inputs)


def _check(inputs: Mapping[str, Tensor], labels: Tensor, vocabulary: int) -> None:
    if set(inputs) != {IDS, MASK}:
        raise DataError(f"texts are {IDS} and {MASK}, not {', '.join(sorted(inputs))}")
    ids, mask = inputs[IDS], inputs[MASK]
    for name, tensor in ((IDS, ids), (MASK, mask)):
        if tensor.dtype != torch.int64 or tensor.ndim != 2 or tensor.shape != ids.shape:
            raise DataError(
                f"{name} must be int64 [N, length], not {tensor.dtype} {list(tensor.shape)}"
            )
    if labels.dtype != torch.int64 or labels.shape != ids.shape[:1]:
        raise DataError(f"labels must be int64 [{len(ids)}], not {list(labels.shape)}")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise DataError(f"{IDS} has tokens outside 0..{vocabulary - 1}")
    if bool((mask.diff(dim=1) > 0).any()) or bool((mask[:, :1] != 1).any()):
        raise DataError(f"{MASK} must be ones, at least one, and then zeros in every row")
