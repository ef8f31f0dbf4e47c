"""LoRA with a memory: adapters that learn without moving what the wrapped layers answer.

    memory.remember(old)                           the base model, as always
    peft_model = get_peft_model(model, LoraConfig(...))
    nscl.integrations.peft.prepare(peft_model, memory)
    memory.protect(optimizer)                      and train

PEFT gives the layers it wraps other names (``q_proj`` → ``q_proj.base_layer``); the memory follows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from nscl.core.memory import Memory
from nscl.core.projection.rules import Rule
from nscl.errors import NsclError
from nscl.integrations.peft_adapters import adapters_of
from nscl.integrations.peft_layers import names_inside, names_with_wrappers, tuner_layers


def prepare(peft_model: nn.Module, memory: Memory, *, rule: Rule | None = None) -> None:
    """Keep the active LoRA adapters out of what the remembered data use; before training.

    An untouched adapter (B is zero) has its A moved into the null space of the wrapped layer's
    inputs, which changes no output, and A stays in it; B is free. ``rule`` chooses the null space:
    by default the memory's own rule, and ``Energy(0.01)`` where that is soft. An adapter that was
    trained must have been remembered: its A and B are then held as two layers. Frozen parameters
    stay remembered, but are neither decomposed nor reported while they are frozen.
    """
    layers = tuner_layers(memory.model)
    theirs = {id(module) for module in peft_model.modules()}
    if not any(id(layer) in theirs for layer in layers.values()):
        raise NsclError(
            f"{type(peft_model).__name__} has no LoRA layer in this memory's model: give the "
            "result of get_peft_model(model, LoraConfig(...)) for the model that was remembered"
        )
    adapters = [adapter for name, layer in layers.items() for adapter in adapters_of(name, layer)]
    if not memory.tasks:
        raise NsclError("nothing is remembered yet: prepare comes after memory.remember(...)")
    memory.adapt(adapters, names=names_with_wrappers(memory.model), rule=rule)


def merge_and_unload(peft_model: PeftModel, memory: Memory, **options: Any) -> nn.Module:
    """Merge the adapters with PEFT's method of this name, and let the memory follow.

    Layers have their old names back, and with them what is remembered. ``options`` are PEFT's.
    """
    memory.flush()
    names = {now: name for name, now in names_with_wrappers(memory.model, trained=True).items()}
    inside = names_inside(memory.model)
    merged = {names[name]: weight for name, weight in _merged(memory, options.get("adapter_names"))}
    model: nn.Module = peft_model.merge_and_unload(**options)
    for name, module in memory.model.named_modules():
        if module is peft_model and name:  # it stands for the model that it has wrapped
            memory.model.set_submodule(name, model)
            break
    memory.remove_adapters(inside, names=names, merged=merged)
    return model


@torch.no_grad()
def _merged(memory: Memory, adapters: list[str] | None) -> Iterator[tuple[str, Tensor]]:
    """Weights of the last ``remember`` with the adapters that they had then."""
    remembered = memory.remembered
    for name, layer in tuner_layers(memory.model).items():
        weight = remembered.get(f"{name}.base_layer.weight")
        if weight is not None:
            chosen = [a for a in adapters or layer.active_adapters if a in layer.lora_A]
            for delta in (_delta(name, layer, adapter, remembered) for adapter in chosen):
                weight = weight if delta is None else weight + delta
            yield f"{name}.base_layer.weight", weight


def _delta(name: str, layer: Any, adapter: str, remembered: Mapping[str, Tensor]) -> Tensor | None:
    """What PEFT would add for an adapter; nothing for one that came after the last ``remember``."""
    parts = {
        f"{name}.{part}.{adapter}.weight": getattr(layer, part)[adapter].weight
        for part in ("lora_A", "lora_B")
    }
    if not parts.keys() <= remembered.keys():
        return None
    own = {key: weight.detach().clone() for key, weight in parts.items()}
    for key, weight in parts.items():
        weight.copy_(remembered[key])
    delta: Tensor = layer.get_delta_weight(adapter)
    for key, weight in parts.items():
        weight.copy_(own[key])
    return delta
