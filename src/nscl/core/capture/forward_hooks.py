"""Hooks that read layer inputs during a pass over old data; all are removed afterwards."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.capture.batch import describe
from nscl.core.capture.functional_use import FunctionalUseMonitor
from nscl.core.capture.output_gradients import OutputTaps
from nscl.core.capture.patched_forward import (
    computes_as_its_type,
    computes_from_rows,
    is_patched,
)
from nscl.core.covariance.observations import Observation
from nscl.core.distributed.fsdp import check_together
from nscl.core.model.block import Block
from nscl.core.model.inventory import Inventory
from nscl.core.model.layer_types import Call, LayerType, layer_type_of
from nscl.core.model.shared_storage import Aliases
from nscl.core.projection.precision import full_precision
from nscl.errors import FeatureError, NsclError

# Takes one call of a block; returns which of its rows count, or None for all.
Sink = Callable[[Block, Observation, int | None], Tensor | None]


@contextmanager
def observing(
    found: Inventory,
    sink: Sink,
    *,
    norms: bool = False,
    taps: OutputTaps | None = None,
    together: MutableMapping[str, Tensor] | None = None,
) -> Iterator[FunctionalUseMonitor]:
    """Report every call of every protected layer to ``sink``; yields the monitor of other uses.

    ``norms`` says whether normalisation layers are protected, so that no use of them may be missed.
    ``taps`` follow the outputs, for their gradients. ``together`` receives the gathered tensors
    that the graph has in place of the norms' sharded parameters.
    """
    protected = {name for block in found.blocks.values() for name in block.parameters}
    protected |= found.norm_parameters().keys() if norms else set()
    monitor = FunctionalUseMonitor(found.names, Aliases(found.parameters), protected)
    with ExitStack() as stack:
        for module in found.uses:
            leave = _leave(monitor, module, found, sink, taps)
            _follow(stack, monitor, module, _owned(module, found), leave)
        for name, norm in found.norms.items():
            own = frozenset(found.names[id(p)] for p in norm.parameters())
            leave_norm = _leave_norm(monitor, name, _sharded(norm, found), together)
            _follow(stack, monitor, norm, own, leave_norm)
        for module, names in found.owners.items():
            note = _note(monitor, names, found, _sharded(module, found), together)
            stack.callback(module.register_forward_hook(note, prepend=True).remove)
        with monitor:
            yield monitor
    monitor.raise_if_unsupported()


def _follow(
    stack: ExitStack,
    monitor: FunctionalUseMonitor,
    module: nn.Module,
    owned: frozenset[str],
    leave: Callable[..., Any],
) -> None:
    # First of all, so that it has run when the layer's own hooks raise.
    enter = module.register_forward_pre_hook(_enter(monitor, owned), prepend=True)
    stack.callback(enter.remove)
    # First of all hooks: after fully_shard's own the weights are sharded again.
    handle = module.register_forward_hook(leave, prepend=True, with_kwargs=True, always_call=True)
    stack.callback(handle.remove)


def _owned(module: nn.Module, found: Inventory) -> frozenset[str]:
    """The parameters that a layer's type describes; a child's weights are the child's own."""
    blocks = [found.blocks[use.block] for use in found.uses[module] if use.block]
    return frozenset(name for block in blocks for name in block.parameters)


def _enter(monitor: FunctionalUseMonitor, owned: frozenset[str]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any) -> None:
        monitor.running.append(owned)

    return hook


def _leave(
    monitor: FunctionalUseMonitor,
    module: nn.Module,
    found: Inventory,
    sink: Sink,
    taps: OutputTaps | None,
) -> Callable[..., Any]:
    layer_type = layer_type_of(module)
    uses = found.uses[module]
    blocks = [found.blocks[use.block] if use.block else None for use in uses]
    layer = next((block for block in blocks if block), None)
    patched, is_compared = is_patched(module), False

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        nonlocal is_compared
        monitor.running.pop()
        raised = output is None
        if raised or monitor.is_paused or layer_type is None or layer is None:
            return None
        check_together(layer.name, module.parameters(), layer.way_out)
        with monitor.paused(), torch.no_grad():
            call = Call(args, kwargs, output)
            if patched and not computes_as_its_type(module, call):
                monitor.altered.append(layer)
                return None
            rows = _seen(layer, module, layer_type, call)
            real = [
                sink(block, seen, use.constant) if block else None
                for use, block, seen in zip(uses, blocks, rows, strict=True)
            ]
            if not is_compared:
                _check_output(layer, module, layer_type, call, rows)
                is_compared = True
            return taps.add(module, layer_type, blocks, call, real) if taps else None

    return hook


def _seen(layer: Block, module: nn.Module, layer_type: LayerType, call: Call) -> list[Observation]:
    """What a call feeds to a layer's matrices; a problem here is not the model's."""
    given = [t for t in (*call.args, *call.kwargs.values()) if isinstance(t, Tensor)]
    for tensor in given:
        if tensor.is_nested or tensor.layout != torch.strided:
            raise FeatureError(
                f"layer '{layer.name}' was given a {describe(tensor)}, whose rows cannot be read: "
                f"hand it dense tensors while remembering (forward=...){layer.way_out}"
            )
    try:
        return list(layer_type.observe(module, call))
    except NsclError:
        raise
    except Exception as problem:
        inputs = ", ".join(map(describe, given)) or "no tensor"
        raise FeatureError(
            f"the rows of layer '{layer.name}' ({layer.kind}) could not be read from its call "
            f"with {inputs}: {type(problem).__name__}: {problem}"
        ) from problem


def _check_output(
    layer: Block, module: nn.Module, layer_type: LayerType, call: Call, seen: list[Observation]
) -> None:
    """Refuse a function that reads other rows than those the layer multiplies."""
    if not computes_from_rows(layer_type, module, call, seen):
        raise FeatureError(
            f"layer '{layer.name}' ({layer.kind}) does not compute rows @ weight.T + bias from the "
            "rows of its registered function: correct that function, or register it with "
            f"check=False if it computes more after the product{layer.way_out}"
        )


def _sharded(module: nn.Module, found: Inventory) -> dict[str, str]:
    """Qualified names of sharded parameters that are held number by number."""
    own = {name: found.names[id(p)] for name, p in module.named_parameters(recurse=False)}
    held = found.elementwise().keys()
    return {
        n: q for n, q in own.items() if q in held and hasattr(found.parameters[q], "placements")
    }


def _leave_norm(
    monitor: FunctionalUseMonitor,
    name: str,
    sharded: Mapping[str, str],
    together: MutableMapping[str, Tensor] | None,
) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        monitor.running.pop()
        if output is None:
            return
        monitor.norms_seen.add(name)
        _take_whole(name, module, sharded, together)

    return hook


def _note(
    monitor: FunctionalUseMonitor,
    names: list[str],
    found: Inventory,
    sharded: Mapping[str, str],
    together: MutableMapping[str, Tensor] | None,
) -> Callable[..., None]:
    # The monitor sees which plain parameters are used, except for those that FSDP2 gathers.
    surely = {name for name in names if name not in found.plain} | set(sharded.values())

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        monitor.used.update(surely)
        _take_whole(names[0], module, sharded, together)

    return hook


def _take_whole(
    name: str,
    module: nn.Module,
    sharded: Mapping[str, str],
    together: MutableMapping[str, Tensor] | None,
) -> None:
    """Keep the gathered parameters that autograd sees while the module runs."""
    if together is not None and sharded:
        own = dict(module.named_parameters(recurse=False))
        check_together(name, own.values(), ", or use norms='freeze' or 'train'")
        together.update({sharded[n]: own[n] for n in sharded})


@contextmanager
def differentiating(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Give frozen parameters gradients too: they may be unfrozen after they are remembered."""
    frozen = [p for p in parameters if not p.requires_grad]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, full precision, no path that skips hooks; afterwards everything is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    device = next(model.parameters()).device.type
    fast = torch.backends.mha.get_fastpath_enabled()
    model.eval()
    torch.backends.mha.set_fastpath_enabled(False)  # the fused path calls no submodule
    try:
        # A compiled model would run its old graph, without our hooks.
        with full_precision(device), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        # By train(), where a module may do more than set a flag: LoRA merges its weights for eval.
        for module, training in modes:
            if module.training != training:
                module.train(training)
        for module, training in modes:
            module.training = training
