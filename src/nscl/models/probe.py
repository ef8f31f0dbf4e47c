"""How many features a backbone gives: by running it once on a batch of zeros."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nscl.models.errors import ModelError
from nscl.models.shapes import check_shape
from nscl.models.wording import one_line


def measured_features(
    backbone: nn.Module, image_shape: Sequence[int], *, name: str = "the backbone"
) -> int:
    """Run two black images through ``backbone`` in eval mode and count its features.

    Lazy layers get their shapes on the way; the modes of all modules are put back. An
    ``out_features`` the backbone declares must be what it gives.
    """
    zeros = _zeros(backbone, check_shape(image_shape))
    with _evaluating(backbone), torch.no_grad():
        try:
            features = backbone(zeros)
        except Exception as error:
            raise ModelError(
                f"{name} cannot take images of shape {list(zeros.shape)}: {one_line(error)}"
            ) from error
    if not isinstance(features, Tensor) or features.ndim != 2 or features.shape[0] != 2:
        raise ModelError(
            f"{name} must turn 2 images into features [2, out_features], got {_told(features)}: "
            "flatten its output, leave out its head"
        )
    declared = getattr(backbone, "out_features", features.shape[1])
    if declared != features.shape[1]:
        raise ModelError(
            f"{name} declares out_features={declared!r} but gives {features.shape[1]} features"
        )
    return int(features.shape[1])


def _zeros(backbone: nn.Module, shape: tuple[int, int, int]) -> Tensor:
    floats = (p for p in backbone.parameters() if p.is_floating_point())
    like = next(floats, torch.empty(0))
    return torch.zeros(2, *shape, dtype=like.dtype, device=like.device)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _told(value: object) -> str:
    return str(list(value.shape)) if isinstance(value, Tensor) else f"a {type(value).__name__}"
