"""The LoRA adapters that a memory can keep, and a reason in one line for those that it cannot."""

from collections.abc import Iterator
from typing import Any

from peft.tuners.lora import layer as lora
from torch import nn

from nscl.core.adapters.low_rank import Adapter
from nscl.errors import UnsupportedError

SUPPORTED = (lora.Linear, lora.Conv1d, lora.Conv2d, lora.Conv3d)
_GEOMETRY = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")


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
