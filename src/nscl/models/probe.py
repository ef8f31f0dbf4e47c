"""Measure how many features a backbone returns, by running it once on zeros."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nscl.messages import one_line
from nscl.models.errors import ModelError
from nscl.models.networks.shapes import check_shape, check_text_shape


def measured_features(
    backbone: nn.Module, shape: Sequence[int], *, name: str = "the backbone"
) -> int:
    """Run two black images, or two texts, through ``backbone`` in eval mode; count its features.

    ``shape`` is (channels, height, width) of images or (length, vocabulary) of texts.

    Lazy layers get their shapes; the modes of all modules are restored. If the backbone declares
    ``out_features``, it must match.
    """
    texts = len(shape) == 2
    probe = _text(backbone, shape) if texts else _zeros(backbone, check_shape(shape))
    what = "texts" if texts else "images"
    with _evaluating(backbone), torch.no_grad():
        try:
            features = backbone(probe)
        except Exception as error:
            raise ModelError(
                f"{name} cannot take {what} of shape {[2, *(shape[:1] if texts else shape)]}: "
                f"{one_line(error)}"
            ) from error
    if not isinstance(features, Tensor) or features.ndim != 2 or features.shape[0] != 2:
        raise ModelError(
            f"{name} must turn 2 {what} into features [2, out_features], got "
            f"{_described(features)}: flatten its output, leave out its head"
        )
    declared = getattr(backbone, "out_features", features.shape[1])
    if declared != features.shape[1]:
        raise ModelError(
            f"{name} declares out_features={declared!r} but returns {features.shape[1]} features"
        )
    return int(features.shape[1])


def _zeros(backbone: nn.Module, shape: tuple[int, int, int]) -> Tensor:
    floats = (p for p in backbone.parameters() if p.is_floating_point())
    like = next(floats, torch.empty(0))
    return torch.zeros(2, *shape, dtype=like.dtype, device=like.device)


def _text(backbone: nn.Module, shape: Sequence[int]) -> dict[str, Tensor]:
    length, _ = check_text_shape(shape)
    device = next((p.device for p in backbone.parameters()), torch.device("cpu"))
    ids = torch.zeros(2, length, dtype=torch.int64, device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _described(value: object) -> str:
    return str(list(value.shape)) if isinstance(value, Tensor) else f"a {type(value).__name__}"
