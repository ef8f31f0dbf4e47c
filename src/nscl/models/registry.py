"""The models by name; listing them does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from nscl import pretrained
from nscl.messages import did_you_mean
from nscl.models.errors import ModelError
from nscl.models.factory import call_factory, load_factory

if TYPE_CHECKING:
    from torch import nn

    from nscl.models.heads import TaskModel

SCENARIOS = ("task", "domain", "class")


@dataclass(frozen=True)
class ModelInfo:
    """A backbone by name: what it is, and the ``package.module:factory`` that builds it."""

    name: str
    description: str
    factory: str
    takes: Literal["images", "texts"] = "images"


_ENCODER = "nscl.models.networks.pretrained_encoder:read_encoder"  # its first argument: the name

MODELS: Mapping[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo(
            "resnet18",
            "PreAct ResNet-18 for small images; options width (the paper's is 64) and stem_stride",
            "nscl.models.networks.preact_resnet:preact_resnet18",
        ),
        ModelInfo(
            "convnet",
            "plain conv-BatchNorm-ReLU network for small images; options depth, width",
            "nscl.models.networks.convnet:convnet",
        ),
        ModelInfo(
            "mlp",
            "multilayer perceptron on flattened images; options depth, width",
            "nscl.models.networks.mlp:mlp",
        ),
        ModelInfo(
            "mobilenetv2",
            "MobileNetV2; options size (96 pixels or more) and weights, a file of torchvision's",
            "nscl.models.networks.mobilenetv2:mobilenetv2",
        ),
        ModelInfo(
            "tiny-transformer",
            "two small transformer blocks for texts; options depth, width; no download",
            "nscl.models.networks.tiny_transformer:tiny_transformer",
            "texts",
        ),
        ModelInfo(
            "minilm",
            "all-MiniLM-L6-v2, a pretrained sentence encoder; needs the extra text",
            _ENCODER,
            "texts",
        ),
        ModelInfo(
            "hf:PATH",
            "any encoder that transformers has saved in the folder PATH; needs the extra text",
            _ENCODER,
            "texts",
        ),
    )
}


def list_models() -> list[ModelInfo]:
    """List the named models, in a fixed order, without importing torch.

    >>> [info.name for info in list_models()]
    ['resnet18', 'convnet', 'mlp', 'mobilenetv2', 'tiny-transformer', 'minilm', 'hf:PATH']
    """
    return list(MODELS.values())


def build_model(
    name: str,
    *,
    image_shape: Sequence[int] | None = None,
    text_shape: Sequence[int] | None = None,
    classes_per_task: Sequence[int],
    scenario: str = "task",
    width: int | None = None,
    size: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> "TaskModel":
    """Build a backbone and its heads, drawing weights from torch's global generator.

    ``name`` is one of ``list_models()`` or ``package.module:factory``, a callable that takes
    ``image_shape`` (channels, height, width) and returns a module from images to features
    ``[N, out_features]``. For texts give ``text_shape`` (length, vocabulary) instead: then the
    factory takes that, and its module a dictionary of ``input_ids`` and ``attention_mask``. Images
    are resized to ``size`` × ``size`` on the way in. ``width`` and ``options`` go to the factory as
    keywords; left out, its own defaults hold. Scenario "task" gives a head per task, "domain" one
    head for all, "class" one head that grows.

    >>> model = build_model("mlp", image_shape=(1, 8, 8), classes_per_task=[2, 2], width=32)
    >>> model.features, model.classes_per_task
    (32, [2, 2])
    """
    _check_scenario(scenario, classes_per_task)
    backbone, features = build_backbone(
        name,
        image_shape=image_shape,
        text_shape=text_shape,
        width=width,
        size=size,
        options=options,
    )
    from nscl.models.heads import GrowingHead, MultiHead, SingleHead

    if scenario == "domain":
        return SingleHead(backbone, classes_per_task[0], features=features)
    heads = GrowingHead if scenario == "class" else MultiHead
    return heads(backbone, classes_per_task, features=features)


def build_backbone(
    name: str,
    *,
    image_shape: Sequence[int] | None = None,
    text_shape: Sequence[int] | None = None,
    width: int | None = None,
    size: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> "tuple[nn.Module, int]":
    """Build only the network below the heads; return it with the number of its features."""
    shape = _shape(name, image_shape, text_shape)
    keywords = dict(options or {}) | ({} if width is None else {"width": width})
    path = _factory_path(name)
    factory = load_factory(path)
    if path == _ENCODER:
        factory = partial(factory, name)
    if size is None:
        backbone = call_factory(factory, shape, name=name, options=keywords)
    else:
        backbone = _resized(factory, shape, size, name=name, options=keywords)
    from nscl.models.probe import measured_features

    return backbone, measured_features(backbone, shape, name=name)


def _resized(
    factory: Any, shape: Sequence[int], size: int, *, name: str, options: Mapping[str, Any]
) -> "nn.Module":
    if len(shape) != 3:
        raise ModelError(f"model.size is for images: leave it out for {name}")
    from nscl.models.networks.resized import Resized

    network = call_factory(factory, (shape[0], size, size), name=name, options=options)
    return Resized(network, size)


def _shape(
    name: str, image_shape: Sequence[int] | None, text_shape: Sequence[int] | None
) -> Sequence[int]:
    """The one shape that is given, if it is of what the model takes."""
    if (image_shape is None) == (text_shape is None):
        raise ModelError("give image_shape for images or text_shape for texts, one of them")
    given: Literal["images", "texts"] = "images" if text_shape is None else "texts"
    info = MODELS.get(_entry(name))
    if info is not None and info.takes != given:
        fitting = ", ".join(other.name for other in MODELS.values() if other.takes == given)
        raise ModelError(f"model {name!r} takes {info.takes}, not {given}: choose {fitting}")
    shape = image_shape if text_shape is None else text_shape
    assert shape is not None
    return shape


def _entry(name: str) -> str:
    """The name under which a model is listed."""
    return f"{pretrained.PREFIX}PATH" if name.startswith(pretrained.PREFIX) else name


def check_model_name(name: str) -> None:
    """Raise what building a model of this name would, before anything else is done.

    Not whether pretrained weights are here: a plan may be read where they are not.

    >>> check_model_name("resnet18")
    """
    load_factory(_factory_path(name))


def _factory_path(name: str) -> str:
    if _entry(name) in MODELS:
        return MODELS[_entry(name)].factory
    if ":" in name:
        return name
    raise ModelError(
        f"there is no model {name!r}{did_you_mean(name, MODELS)}; "
        f"choose {', '.join(MODELS)} or package.module:factory"
    )


def _check_scenario(scenario: str, classes_per_task: Sequence[int]) -> None:
    if scenario not in SCENARIOS:
        raise ModelError(
            f"there is no scenario {scenario!r}{did_you_mean(scenario, SCENARIOS)}; "
            f"choose {', '.join(SCENARIOS)}"
        )
    if not classes_per_task:
        raise ModelError("classes_per_task is empty: a model needs at least one task")
    if scenario == "domain" and len(set(classes_per_task)) > 1:
        raise ModelError(
            f"one head for all tasks needs the same number of classes in each, got "
            f"{list(classes_per_task)}: use the task scenario"
        )
