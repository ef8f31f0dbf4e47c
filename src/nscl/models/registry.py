"""The models that can be asked for by name; listing them imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nscl.models.errors import ModelError
from nscl.models.factory import call_factory, load_factory
from nscl.models.wording import did_you_mean

if TYPE_CHECKING:
    from torch import nn

    from nscl.models.heads import TaskModel

SCENARIOS = ("task", "domain")


@dataclass(frozen=True)
class ModelInfo:
    """A backbone by name: what it is, and the ``package.module:factory`` that builds it."""

    name: str
    description: str
    factory: str


MODELS: Mapping[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo(
            "resnet18",
            "PreAct ResNet-18 with the small-image stem; width 64 is the paper's, 8 preset cpu's",
            "nscl.models.preact_resnet:preact_resnet18",
        ),
        ModelInfo(
            "convnet",
            "plain conv-BatchNorm-ReLU network for small images; options depth, width",
            "nscl.models.convnet:convnet",
        ),
        ModelInfo(
            "mlp",
            "multilayer perceptron on flattened images; options depth, width",
            "nscl.models.mlp:mlp",
        ),
    )
}


def list_models() -> list[ModelInfo]:
    """List the named models, in a fixed order, without importing torch.

    >>> [info.name for info in list_models()]
    ['resnet18', 'convnet', 'mlp']
    """
    return list(MODELS.values())


def build_model(
    name: str,
    *,
    image_shape: Sequence[int],
    classes_per_task: Sequence[int],
    scenario: str = "task",
    width: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> "TaskModel":
    """Build a backbone and its heads, drawing weights from torch's global generator.

    ``name`` is one of ``list_models()`` or ``package.module:factory``, a callable that takes
    ``image_shape`` (channels, height, width) and returns a module from images to features
    ``[N, out_features]``. ``width`` and ``options`` go to the factory as keywords; left out, its
    own defaults hold. Scenario "task" gives a head per task, "domain" one head for all.

    >>> model = build_model("mlp", image_shape=(1, 8, 8), classes_per_task=[2, 2], width=32)
    >>> model.features, model.classes_per_task
    (32, [2, 2])
    """
    _check_scenario(scenario, classes_per_task)
    backbone, features = build_backbone(name, image_shape=image_shape, width=width, options=options)
    from nscl.models.heads import MultiHead, SingleHead

    if scenario == "domain":
        return SingleHead(backbone, classes_per_task[0], features=features)
    return MultiHead(backbone, classes_per_task, features=features)


def build_backbone(
    name: str,
    *,
    image_shape: Sequence[int],
    width: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> "tuple[nn.Module, int]":
    """Build only the network below the heads; return it with the number of its features."""
    keywords = dict(options or {}) | ({} if width is None else {"width": width})
    factory = load_factory(_factory_path(name))
    backbone = call_factory(factory, image_shape, name=name, options=keywords)
    from nscl.models.probe import measured_features

    return backbone, measured_features(backbone, image_shape, name=name)


def check_model(name: str) -> None:
    """Raise what building a model of this name would, before anything else is done.

    >>> check_model("resnet18")
    """
    load_factory(_factory_path(name))


def _factory_path(name: str) -> str:
    if ":" in name:
        return name
    if name in MODELS:
        return MODELS[name].factory
    raise ModelError(
        f"there is no model {name!r}{did_you_mean(name, MODELS)}; "
        f"choose {', '.join(MODELS)} or package.module:factory"
    )


def _check_scenario(scenario: str, classes_per_task: Sequence[int]) -> None:
    if scenario not in SCENARIOS:
        raise ModelError(
            f"there is no scenario {scenario!r}{did_you_mean(scenario, SCENARIOS)}; "
            f"choose {' or '.join(SCENARIOS)}"
        )
    if not classes_per_task:
        raise ModelError("classes_per_task is empty: a model needs at least one task")
    if scenario == "domain" and len(set(classes_per_task)) > 1:
        raise ModelError(
            f"one head for all tasks needs the same number of classes in each, got "
            f"{list(classes_per_task)}: use the task scenario"
        )
