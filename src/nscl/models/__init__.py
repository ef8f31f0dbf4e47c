"""Networks for streams of tasks; names and listings come without torch, networks bring it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nscl.models.errors import ModelError
from nscl.models.registry import MODELS, ModelInfo, build_backbone, build_model, list_models

if TYPE_CHECKING:
    from nscl.models.convnet import ConvNet
    from nscl.models.heads import MultiHead, SingleHead, TaskModel
    from nscl.models.mlp import MLP
    from nscl.models.norms import NORM_TYPES
    from nscl.models.per_task_statistics import NormStatistics
    from nscl.models.preact_resnet import PreActResNet18

__all__ = [
    "MLP",
    "MODELS",
    "NORM_TYPES",
    "ConvNet",
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
    "ConvNet": "convnet",
    "MLP": "mlp",
    "MultiHead": "heads",
    "NORM_TYPES": "norms",
    "NormStatistics": "per_task_statistics",
    "PreActResNet18": "preact_resnet",
    "SingleHead": "heads",
    "TaskModel": "heads",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"nscl.models.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
