"""One pass over old data with eyes open: hooks that fetch layer inputs, and nothing left behind."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.batches import describe
from nscl.core.blocks import Block
from nscl.core.inventory import Inventory
from nscl.core.layers import Call, LayerType, layer_type_of
from nscl.core.output_gradients import OutputTaps
from nscl.core.overlaps import Aliases
from nscl.core.patched import computes_as_its_type, is_patched
from nscl.core.precision import full_precision
from nscl.core.running import Observation
from nscl.core.shards import check_together
from nscl.core.witness import Witness
from nscl.errors import FeatureError, NsclError

Sink = Callable[[Block, Observation, int | None], None]


@contextmanager
def observing(
    found: Inventory,
    sink: Sink,
    *,
    norms: bool = False,
    taps: OutputTaps | None = None,
    together: MutableMapping[str, Tensor] | None = None,
) -> Iterator[Witness]:
    """Report every call of every protected layer to ``sink``; yields what is seen besides.

    ``norms`` tells whether normalisation layers are held, so that no use of them may be missed.
    ``taps`` follow the outputs, for their gradients. ``together`` is given the tensors that take
    the place of the norms' sharded parameters in the graph.
    """
    protected = {name for block in found.blocks.values() for name in block.parameters}
    protected |= found.norm_parameters().keys() if norms else set()
    witness = Witness(found.names, Aliases(found.parameters), protected)
    with ExitStack() as stack:
        for module in found.uses:
            leave = _leave(witness, module, found, sink, taps)
            _follow(stack, witness, module, _owned(module, found), leave)
        for name, norm in found.norms.items():
            own = frozenset(found.names[id(p)] for p in norm.parameters())
            leave_norm = _leave_norm(witness, name, _sharded(norm, found), together)
            _follow(stack, witness, norm, own, leave_norm)
        for module, names in found.owners.items():
            note = _note(witness, names, _sharded(module, found), together)
            stack.callback(module.register_forward_hook(note, prepend=True).remove)
        with witness:
            yield witness
    witness.testify()


def _follow(
    stack: ExitStack,
    witness: Witness,
    module: nn.Module,
    owned: frozenset[str],
    leave: Callable[..., Any],
) -> None:
    # First of all, so that it has run when the layer's own hooks raise.
    enter = module.register_forward_pre_hook(_enter(witness, owned), prepend=True)
    stack.callback(enter.remove)
    # First of all hooks: fully_shard's own would already have taken the weights apart.
    handle = module.register_forward_hook(leave, prepend=True, with_kwargs=True, always_call=True)
    stack.callback(handle.remove)


def _owned(module: nn.Module, found: Inventory) -> frozenset[str]:
    """What a layer's type knows about; a child's weights are the child's own."""
    blocks = [found.blocks[use.block] for use in found.uses[module] if use.block]
    return frozenset(name for block in blocks for name in block.parameters)


def _enter(witness: Witness, owned: frozenset[str]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any) -> None:
        witness.running.append(owned)

    return hook


def _leave(
    witness: Witness, module: nn.Module, found: Inventory, sink: Sink, taps: OutputTaps | None
) -> Callable[..., Any]:
    layer_type = layer_type_of(module)
    uses = found.uses[module]
    blocks = [found.blocks[use.block] if use.block else None for use in uses]
    layer = next((block for block in blocks if block), None)
    patched = is_patched(module)

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        witness.running.pop()
        raised = output is None
        if raised or witness.blind or layer_type is None or layer is None:
            return None
        check_together(layer.name, module.parameters(), layer.way_out)
        with witness.looking_away(), torch.no_grad():
            call = Call(args, kwargs, output)
            if patched and not computes_as_its_type(module, call):
                witness.altered.append(layer)
                return None
            rows = _seen(layer, module, layer_type, call)
            for use, block, seen in zip(uses, blocks, rows, strict=True):
                if block:
                    sink(block, seen, use.constant)
            return taps.add(module, layer_type, blocks, call) if taps else None

    return hook


def _seen(layer: Block, module: nn.Module, layer_type: LayerType, call: Call) -> list[Observation]:
    """What a call feeds a layer's matrices; a problem here is not the model's."""
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


def _sharded(module: nn.Module, found: Inventory) -> dict[str, str]:
    """Qualified names of parameters that are held number by number and kept in pieces."""
    own = {name: found.names[id(p)] for name, p in module.named_parameters(recurse=False)}
    held = found.elementwise().keys()
    return {
        n: q for n, q in own.items() if q in held and hasattr(found.parameters[q], "placements")
    }


def _leave_norm(
    witness: Witness,
    name: str,
    sharded: Mapping[str, str],
    together: MutableMapping[str, Tensor] | None,
) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        witness.running.pop()
        if output is None:
            return
        witness.norms_seen.add(name)
        _take_whole(name, module, sharded, together)

    return hook


def _note(
    witness: Witness,
    names: list[str],
    sharded: Mapping[str, str],
    together: MutableMapping[str, Tensor] | None,
) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        witness.used.update(names)
        _take_whole(names[0], module, sharded, together)

    return hook


def _take_whole(
    name: str,
    module: nn.Module,
    sharded: Mapping[str, str],
    together: MutableMapping[str, Tensor] | None,
) -> None:
    """Keep what autograd sees of sharded parameters while the module runs."""
    if together is not None and sharded:
        own = dict(module.named_parameters(recurse=False))
        check_together(name, own.values(), ", or use norms='freeze' or 'train'")
        together.update({sharded[n]: own[n] for n in sharded})


@contextmanager
def differentiating(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Let frozen parameters have gradients too: they may be unfrozen after they are remembered."""
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
    """Eval mode, full precision, hooks honoured; everything as it was afterwards."""
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
