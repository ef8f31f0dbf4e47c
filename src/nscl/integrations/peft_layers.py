"""What PEFT has made of a model: the names of wrapped layers, and the adapters beside them."""

from collections.abc import Iterator
from typing import Any

from peft import PeftModel
from peft.tuners.lora import layer as lora
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import ModulesToSaveWrapper
from torch import nn

from nscl.core.adapters.low_rank import Adapter
from nscl.core.model.name_patterns import clean
from nscl.errors import UnsupportedError

SUPPORTED = (lora.Linear, lora.Conv1d, lora.Conv2d, lora.Conv3d)
_GEOMETRY = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")


def tuner_layers(root: nn.Module) -> dict[str, Any]:
    """The layers that PEFT has wrapped, by name; of any type."""
    return {clean(n): m for n, m in root.named_modules() if isinstance(m, BaseTunerLayer)}


def names_with_wrappers(root: nn.Module, *, trained: bool = False) -> dict[str, str]:
    """From names without PEFT's wrappers to those with them: modules, parameters and buffers.

    What ``modules_to_save`` copies has the name of the original, or, if ``trained``, of the copy.
    """
    start = "base_model.model" if isinstance(root, PeftModel) else ""
    pairs = _pairs(root.get_submodule(start), start, start, trained)
    return {clean(before): clean(now) for before, now in pairs if before != now}


def names_inside(root: nn.Module) -> list[str]:
    """What is gone once PEFT's wrappers are: adapters, and originals of ``modules_to_save``."""
    adapters = (f"{name}.{part}" for name in tuner_layers(root) for part in ("lora_A", "lora_B"))
    wrappers = (n for n, m in root.named_modules() if isinstance(m, ModulesToSaveWrapper))
    return [*adapters, *(f"{clean(name)}.original_module" for name in wrappers)]


def _pairs(module: nn.Module, before: str, now: str, trained: bool) -> Iterator[tuple[str, str]]:
    inside = _inside(module, trained)
    if inside:
        yield from _pairs(module.get_submodule(inside), before, _join(now, inside), trained)
        return
    yield before, now
    own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    yield from ((_join(before, name), _join(now, name)) for name, _ in own)
    for name, child in module.named_children():
        yield from _pairs(child, _join(before, name), _join(now, name), trained)


def _inside(module: nn.Module, trained: bool) -> str:
    """Where a wrapper keeps the layer; empty for what is none."""
    if isinstance(module, BaseTunerLayer):
        return "base_layer"
    if isinstance(module, ModulesToSaveWrapper):
        return f"modules_to_save.{module.active_adapters[0]}" if trained else "original_module"
    return "base_model.model" if isinstance(module, PeftModel) else ""


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def adapters_of(name: str, layer: Any) -> Iterator[Adapter]:
    """The active adapters of a layer that are trained, once it is clear that they can be kept."""
    base = layer.get_base_layer()
    _check_base(name, layer, base)
    for adapter in layer.active_adapters:
        if adapter in layer.lora_A and layer.lora_A[adapter].weight.requires_grad:
            down, up = layer.lora_A[adapter], layer.lora_B[adapter]
            _check_variant(name, layer, adapter)
            _check_convolution(name, base, down)
            yield Adapter(base, down, up, layer.scaling[adapter])


def _check_base(name: str, layer: Any, base: nn.Module) -> None:
    if isinstance(layer, lora.LoraLayer) and _is_quantised(layer, base):
        raise UnsupportedError(
            f"the weights of '{name}' ({type(base).__name__}) are quantised: a memory needs the "
            "base model in floating point; load it without quantisation, or leave this layer out "
            "of target_modules"
        )
    if not isinstance(layer, SUPPORTED):
        raise UnsupportedError(
            f"'{name}' is adapted by PEFT's {type(layer).__module__.split('.')[-2]} "
            f"({type(layer).__name__}), which no memory can keep: supported is LoRA on linear "
            "layers and convolutions"
        )
    if layer.merged:
        raise UnsupportedError(
            f"the adapter of '{name}' is merged into its weights: call unmerge_adapter() first"
        )


def _is_quantised(layer: Any, base: nn.Module) -> bool:
    weight = getattr(base, "weight", None)
    floats = weight is None or weight.is_floating_point()
    return not floats or type(layer).__module__ != lora.__name__  # a module for each way


def _check_variant(name: str, layer: Any, adapter: str) -> None:
    variant = layer.lora_variant.get(adapter)
    if variant is not None:
        raise UnsupportedError(
            f"adapter '{adapter}' of '{name}' is no plain LoRA ({type(variant).__name__}): what it "
            "does to old inputs depends on more than A, so no null space holds them; use "
            "LoraConfig without it (use_dora=False)"
        )
    if layer.lora_B[adapter].bias is not None:
        raise UnsupportedError(
            f"adapter '{adapter}' of '{name}' has a bias, which moves all old outputs: use "
            "LoraConfig(lora_bias=False)"
        )


def _check_convolution(name: str, base: nn.Module, down: nn.Module) -> None:
    for attribute in _GEOMETRY:
        theirs, ours = getattr(base, attribute, None), getattr(down, attribute, None)
        if isinstance(down, nn.Linear) or theirs == ours:
            continue
        raise UnsupportedError(
            f"PEFT adapts '{name}' by a convolution with {attribute} {ours} where its own is "
            f"{theirs}, so the two have different inputs: leave this layer out of target_modules"
        )
