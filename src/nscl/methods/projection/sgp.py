"""SGP: GPM with an importance per direction (Saha and Roy, AAAI 2023).

``ΔW ↦ ΔW − (ΔW M) diag(λ) Mᵀ`` with importances λ in [0, 1]: directions of which old inputs have
little may still move somewhat. Importances of all tasks add up, at most to 1. The stored basis is
``M √λ``, so λ is the squared length of a column and nothing else needs to be kept.

Specification: docs/methods.md, "SGP".
"""

from dataclasses import replace
from typing import ClassVar

import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor

from nscl.methods.base import Lab
from nscl.methods.projection.gpm import GPM, GPMOptions
from nscl.methods.projection.subspaces.basis_growth import Growth, direction_importances, strengths


class SGPOptions(GPMOptions):
    """GPM's, and how steeply importance falls with the singular value."""

    c: PositiveFloat = 10.0  # larger: closer to GPM


class SGP(GPM):
    """A soft GPM: what is held is scaled, not forbidden."""

    options_type = SGPOptions
    tuning: ClassVar = {"threshold": (0.8, 0.9, 0.95, 0.97), "c": (5.0, 10.0, 25.0)}

    def __init__(self, lab: Lab, options: SGPOptions) -> None:
        super().__init__(lab, options)
        self.c = options.c

    def grown(self, old: Tensor | None, dense: Tensor, noise: Tensor, task: int) -> Growth:
        """Grow the directions as GPM does, then weigh old and new ones together."""
        directions = None if old is None else F.normalize(old, dim=-2)
        growth = super().grown(directions, dense, noise, task)
        weights = direction_importances(strengths(growth.basis, dense), self.c)
        if old is not None:
            weights[:, : old.shape[-1]] += old.square().sum(-2)
        return replace(growth, basis=growth.basis * weights.clamp_max(1.0).sqrt()[:, None])
