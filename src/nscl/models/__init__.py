"""Networks for streams of tasks: backbones by name, heads, statistics of normalisation layers.

Listing the models does not import torch; names that need it are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nscl.models.errors import ModelError
from nscl.models.registry import MODELS, ModelInfo, build_backbone, build_model, list_models

if TYPE_CHECKING:
    from nscl.core.model.elementwise import NORM_TYPES
    from nscl.models.heads import GrowingHead, MultiHead, SingleHead, TaskModel
    from nscl.models.networks.convnet import ConvNet
    from nscl.models.networks.mlp import MLP
    from nscl.models.networks.preact_resnet import PreActResNet18
    from nscl.models.per_task_statistics import NormStatistics

__all__ = [
    "MLP",
    "MODELS",
    "NORM_TYPES",
    "ConvNet",
    "GrowingHead",
    "ModelError",
    "ModelInfo",
    "MultiHead",
    "NormStatistics",
    "PreActResNet18",
    "SingleHead",
    "TaskModel",
    "build_backbone",
    "build_model",
    "list_models",
]

_LATE = {
    "ConvNet": "nscl.models.networks.convnet",
    "GrowingHead": "nscl.models.heads",
    "MLP": "nscl.models.networks.mlp",
    "MultiHead": "nscl.models.heads",
    "NORM_TYPES": "nscl.core.model.elementwise",
    "NormStatistics": "nscl.models.per_task_statistics",
    "PreActResNet18": "nscl.models.networks.preact_resnet",
    "SingleHead": "nscl.models.heads",
    "TaskModel": "nscl.models.heads",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
