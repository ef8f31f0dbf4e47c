"""Labels of a batch, and the loss that a model computes from them itself."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from nscl.core.capture.batch import with_items
from nscl.core.padding.masks import IGNORED
from nscl.core.padding.padding import Padding

_SPANS = ("start_positions", "end_positions")  # the labels of extractive question answering


def labels_in(batch: Any) -> list[Tensor]:
    """The labels that a batch brings for the model itself.

    >>> labels_in({"input_ids": torch.zeros(2, 3), "labels": torch.ones(2)})
    [tensor([1., 1.])]
    """
    if not isinstance(batch, Mapping):
        return []
    names = [key for key in batch if isinstance(key, str) and ("label" in key or key in _SPANS)]
    return [batch[name] for name in names if isinstance(batch[name], Tensor)]


def own_loss(output: Any, batch: Any) -> Callable[[], Tensor] | None:
    """The loss a model has computed from a batch's labels, if it has."""
    labels = labels_in(batch)
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if not labels or not isinstance(found, Tensor) or found.ndim or not found.requires_grad:
        return None
    if all(bool((t == IGNORED).all()) for t in labels):
        return lambda: found.nan_to_num() * 0  # no label counts: the mean over none is not a number
    return lambda: found


def without_padded_labels(batch: Any, padding: Padding | None, model: nn.Module) -> Any:
    """The batch with -100 for the labels of padded positions; they are often left as tokens.

    A model that generates compares each position with the next label: the first token behind
    padding is predicted from a padded position, so its label does not count either.
    """
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    if padding is None or not isinstance(labels, Tensor) or labels.is_floating_point():
        return batch
    writes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    real = padding.second if writes else padding.first
    if real is None or real.shape != labels.shape:
        return batch
    counts = real.clone()
    generates = getattr(model, "can_generate", None)
    if not writes and callable(generates) and generates():
        counts[:, 1:] &= real[:, :-1]
    return with_items(batch, {"labels": labels.masked_fill(~counts.to(labels.device), IGNORED)})
