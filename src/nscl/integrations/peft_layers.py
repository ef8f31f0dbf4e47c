"""What PEFT has made of a model: which layers it has wrapped, and the names they have now."""

from collections.abc import Iterator
from typing import Any

from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import ModulesToSaveWrapper
from torch import nn

from nscl.core.model.name_patterns import clean


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
