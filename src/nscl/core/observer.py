"""One pass over old data with eyes open: hooks that fetch layer inputs, and nothing left behind.

Hooks see calls of modules. A model may also hand a module's weight to a function itself
(``F.linear(x, self.embed.weight)``); a witness watches every torch function during the pass, so
that such a use is an error with a name, never a layer that silently stays unprotected.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from nscl.core.blocks import Block
from nscl.core.inventory import Inventory
from nscl.core.layers import Call, layer_type_of
from nscl.core.running import Observation
from nscl.errors import UnsupportedError

Sink = Callable[[Block, Observation, int | None], None]

# Looking at a weight is not using it.
_HARMLESS = {"size", "dim", "numel", "ndimension", "stride", "is_floating_point", "is_contiguous",
             "is_complex", "element_size", "data_ptr", "__repr__", "__hash__", "requires_grad_",
             "storage_offset", "__len__", "nelement", "get_device", "new_zeros", "new_ones",
             "new_empty", "new_full", "new_tensor", "zeros_like", "ones_like",
             "empty_like"}  # fmt: skip
# Attributes that hand the values on, where shape or dtype only tell about them.
_VIEWS = {"T", "mT", "H", "mH", "data", "real", "imag"}
# ``x.to(weight)`` asks the weight for its dtype only, ``weight.to(...)`` is a use of it.
_OF_THE_FIRST = {"to", "type_as"}


class Witness(TorchFunctionMode):
    """Knows which module is running, and notes weights used outside of their own module."""

    def __init__(self, protected: dict[int, str]) -> None:
        super().__init__()
        self.protected = protected
        self.running: list[frozenset[int]] = []
        self.blind = False
        self.strangers: dict[str, str] = {}
        self.norms_seen: set[str] = set()

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """What happens meanwhile is no part of the pass: losses, recomputation in backward."""
        self.blind = True
        try:
            yield
        finally:
            self.blind = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check the arguments for protected parameters, then do what was asked."""
        kwargs = kwargs or {}
        name, harmless = _name(func)
        if not (self.blind or harmless):
            owned = self.running[-1] if self.running else frozenset()
            used = args[:1] if name in _OF_THE_FIRST else (*args, *kwargs.values())
            for key in _parameters(used):
                if key in self.protected and key not in owned:
                    self.strangers.setdefault(self.protected[key], name)
        return func(*args, **kwargs)


def _name(func: Any) -> tuple[str, bool]:
    """What a torch function (or attribute) is called, and whether it only looks at a tensor."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(func.__self__, "__name__", name)
        return name, name not in _VIEWS
    return name, name in _HARMLESS


def _parameters(values: Iterable[Any]) -> Iterator[int]:
    """Identities of all parameters among arguments, also inside lists (``torch.cat([...])``)."""
    for value in values:
        if isinstance(value, nn.Parameter):
            yield id(value)
        elif isinstance(value, list | tuple):
            yield from _parameters(value)


@contextmanager
def observing(found: Inventory, sink: Sink) -> Iterator[Witness]:
    """Report every call of every protected layer to ``sink``; yields what is seen besides."""
    names = found.names
    protected = {
        key: name
        for key, name in names.items()
        if any(name in block.parameters for block in found.blocks.values())
    }
    witness = Witness(protected)
    with ExitStack() as stack:
        for module in found.uses:
            owned = _owned(module, found, names)
            # First of all, so that it has run when the layer's own hooks raise.
            enter = module.register_forward_pre_hook(_enter(witness, owned), prepend=True)
            stack.callback(enter.remove)
            leave = _leave(witness, module, found, sink)
            # First of all hooks: fully_shard's own would already have taken the weights apart.
            handle = module.register_forward_hook(
                leave, prepend=True, with_kwargs=True, always_call=True
            )
            stack.callback(handle.remove)
        for name, norm in found.norms.items():
            stack.callback(norm.register_forward_hook(_note(witness.norms_seen, name)).remove)
        with witness:
            yield witness
    if witness.strangers:
        name, function = next(iter(witness.strangers.items()))
        raise UnsupportedError(
            f"parameter '{name}' is used by torch function '{function}' outside of its own layer, "
            "so its inputs there cannot be seen: call the layer as a module, write a module for "
            f"that use and teach it with @nscl.register_layer, or exclude=['{name}']"
        )


def _owned(module: nn.Module, found: Inventory, names: dict[int, str]) -> frozenset[int]:
    mine = {
        name
        for use in found.uses[module]
        if use.block
        for name in found.blocks[use.block].parameters
    }
    keys = {id(p) for p in module.parameters()}
    return frozenset(keys | {key for key, name in names.items() if name in mine})


def _enter(witness: Witness, owned: frozenset[int]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any) -> None:
        witness.running.append(owned)

    return hook


def _leave(
    witness: Witness, module: nn.Module, found: Inventory, sink: Sink
) -> Callable[..., None]:
    layer_type = layer_type_of(module)
    uses = found.uses[module]

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        witness.running.pop()
        raised = output is None
        if raised or witness.blind or layer_type is None:
            return
        with witness.looking_away(), torch.no_grad():
            call = Call(args, kwargs, output)
            for use, seen in zip(uses, layer_type.observe(module, call), strict=True):
                if use.block:
                    sink(found.blocks[use.block], seen, use.constant)

    return hook


def _note(seen: set[str], name: str) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        seen.add(name)

    return hook


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, full precision, hooks honoured; everything as it was afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    precision = torch.get_float32_matmul_precision()
    fast = torch.backends.mha.get_fastpath_enabled()
    device = next(model.parameters()).device.type
    model.eval()
    torch.set_float32_matmul_precision("highest")
    torch.backends.mha.set_fastpath_enabled(False)  # the fused path calls no submodule
    try:
        # A compiled model would run its old graph, without our hooks.
        with torch.autocast(device, enabled=False), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.set_float32_matmul_precision(precision)
        for module, training in modes:
            module.training = training
