"""What a model is made of: blocks that can be projected, norms, and what nobody taught us.

Built afresh from the model whenever it is needed, so layers may be added at any time and nothing is
hung on modules or parameters. State elsewhere is keyed by the qualified names found here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor, nn
from torch.nn.utils import parametrize

from nscl.core import attention as _attention  # noqa: F401  (registers MultiheadAttention)
from nscl.core.blocks import Bias, Block
from nscl.core.excluding import clean, excluded, is_meant
from nscl.core.layers import NORMS, LayerType, Matrix, layer_type_of
from nscl.core.overlaps import reject_overlaps
from nscl.errors import UnsupportedError


@dataclass(frozen=True)
class Use:
    """One matrix of one module: the block it belongs to, and which constant is its bias's."""

    block: str
    constant: int | None


@dataclass
class Inventory:
    """A model's parts by qualified name."""

    blocks: dict[str, Block] = field(default_factory=dict)
    uses: dict[nn.Module, list[Use]] = field(default_factory=dict)
    norms: dict[str, nn.Module] = field(default_factory=dict)
    plain: dict[str, nn.Parameter] = field(default_factory=dict)  # class tokens, positions, ...
    unsupported: dict[str, str] = field(default_factory=dict)  # parameter → reason
    owners: dict[nn.Module, list[str]] = field(default_factory=dict)  # of these two kinds
    excluded: set[str] = field(default_factory=set)
    excluded_norms: set[str] = field(default_factory=set)
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    of_weight: dict[str, list[str]] = field(default_factory=dict)  # blocks by parameter

    @cached_property  # asked for each layer: counting anew would cost the square of their number
    def names(self) -> dict[int, str]:
        """Qualified name of a parameter by identity."""
        return {id(parameter): name for name, parameter in self.parameters.items()}

    @property
    def measured_norms(self) -> dict[str, nn.Module]:
        """Norm layers whose running statistics matter: all that are not excluded as a whole."""
        return {n: m for n, m in self.norms.items() if n not in self.excluded_norms}

    def norm_parameters(self, among: Collection[str] | None = None) -> dict[str, nn.Parameter]:
        """Affine parameters of all normalisation layers, or of those named."""
        names = self.names
        return {
            names[id(p)]: p
            for name, module in self.norms.items()
            for p in module.parameters(recurse=False)
            if names[id(p)] not in self.excluded and (among is None or name in among)
        }

    def elementwise(self) -> dict[str, nn.Parameter]:
        """All parameters that are held number by number: those of norms, and plain ones."""
        return {**self.norm_parameters(), **self.plain}


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module inside DistributedDataParallel, DataParallel or torch.compile."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = model.module
        elif hasattr(model, "_orig_mod"):
            inner = model._orig_mod
        else:
            return model
        if not isinstance(inner, nn.Module):
            raise UnsupportedError(f"cannot find the module inside {type(model).__name__}")
        model = inner


def take_inventory(model: nn.Module, *, exclude: Sequence[str] = ()) -> Inventory:
    """List a model's blocks, norms and unsupported parameters."""
    found = Inventory(parameters={clean(n): p for n, p in model.named_parameters()})
    _check_parameters(found)
    found.excluded = excluded(model, found.parameters, exclude)
    for name, module in model.named_modules():
        if isinstance(module, NORMS):
            found.norms[clean(name)] = module
        elif not parametrize.is_parametrized(module):
            layer_type = layer_type_of(module)
            if layer_type is not None:
                _add_layer(found, clean(name), module, layer_type)
    found.excluded_norms = {name for name in found.norms if is_meant(name, exclude)}
    _check_biases(found)
    reject_overlaps(found.parameters, found.excluded)
    _share_token_biases(found)
    _find_the_rest(found, model)
    return found


def _check_parameters(found: Inventory) -> None:
    for name, parameter in found.parameters.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UnsupportedError(
                f"parameter '{name}' has no shape yet: run one batch through the lazy model first"
            )
        if parameter.is_meta:
            raise UnsupportedError(
                f"parameter '{name}' is on the meta device and has no values: "
                "materialise the model (to_empty, load_state_dict) first"
            )


def _add_layer(found: Inventory, name: str, module: nn.Module, layer_type: LayerType) -> None:
    names = found.names
    for matrix in layer_type.matrices(module):
        weight = _get(module, matrix.weight)
        if weight is None or id(weight) not in names:
            found.unsupported[f"{name}.{matrix.weight}"] = f"{type(module).__name__} without it"
            found.uses.setdefault(module, []).append(Use("", None))
            continue
        if names[id(weight)] in found.excluded:
            found.uses.setdefault(module, []).append(Use("", None))
            continue
        _check_dtype(names[id(weight)], weight)
        _check_forward(module, name)
        block = _block(found, name, module, matrix, weight)
        found.uses.setdefault(module, []).append(_merge(found, block))


def _get(module: nn.Module, path: str | None) -> Tensor | None:
    if path is None:
        return None
    owner, _, attribute = path.rpartition(".")
    value = getattr(module.get_submodule(owner), attribute, None)
    return value if isinstance(value, Tensor) else None


def _check_dtype(name: str, weight: Tensor) -> None:
    if not weight.is_floating_point():
        raise UnsupportedError(
            f"parameter '{name}' is {weight.dtype}: only real floating-point weights can be "
            f"projected; leave it out with exclude=['{name}']"
        )


def _check_forward(module: nn.Module, name: str) -> None:
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        raise UnsupportedError(
            f"embedding '{name}' has max_norm, which rewrites weights in every forward pass "
            f"where no optimizer hook can hold them; drop max_norm or exclude=['{name}']"
        )


def _block(found: Inventory, name: str, module: nn.Module, matrix: Matrix, weight: Tensor) -> Block:
    kind, names = type(module).__name__.removeprefix("FSDP"), found.names
    # A bias that is no parameter (a buffer, say) does not move and needs no feature.
    bias = names.get(id(_get(module, matrix.bias)))
    groups, stop = matrix.groups, weight.shape[0] if matrix.stop is None else matrix.stop
    if matrix.layout == "tokens":
        features = weight.shape[0]
    elif matrix.layout == "transposed":
        features = weight.shape[0] // groups * weight.shape[2:].numel()
    else:
        features = weight.shape[1:].numel()
    return Block(
        name=f"{name}.{matrix.label}".strip(".") if matrix.label else name or "model",
        kind=f"{kind}.{matrix.label}" if matrix.label else kind,
        weight=names[id(weight)],
        start=matrix.start,
        stop=stop,
        features=features,
        groups=groups,
        layout=matrix.layout,
        biases=() if bias is None or bias in found.excluded else (Bias(bias, matrix.bias_start),),
    )


def _merge(found: Inventory, block: Block) -> Use:
    """Let modules that share a weight share its block: every use counts, each bias is a feature."""
    for name in found.of_weight.get(block.weight, []):
        known = found.blocks[name]
        overlap = known.start < block.stop and block.start < known.stop
        if not overlap or {known.layout, block.layout} == {"rows", "tokens"}:
            continue
        if (known.layout, known.groups, known.features, known.start, known.stop) != (
            block.layout, block.groups, block.features, block.start, block.stop,
        ):  # fmt: skip
            raise UnsupportedError(
                f"'{block.name}' and '{known.name}' share the parameter '{known.weight}' but "
                f"multiply it as {block.shape()} and as {known.shape()}: no projection holds "
                "both; untie them or exclude the parameter"
            )
        biases = known.biases
        for bias in block.biases:
            if bias not in biases:
                biases = (*biases, bias)
        found.blocks[name] = replace(known, biases=biases)
        return Use(name, biases.index(block.biases[0]) if block.biases else None)
    _check_name(found, block)
    found.blocks[block.name] = block
    found.of_weight.setdefault(block.weight, []).append(block.name)
    return Use(block.name, 0 if block.biases else None)


def _check_name(found: Inventory, block: Block) -> None:
    """A child of an attention may be called as one of its matrices is in reports and files."""
    if other := found.blocks.get(block.name):
        raise UnsupportedError(
            f"'{block.name}' is the name of two matrices, '{other.weight}' ({other.kind}) and "
            f"'{block.weight}' ({block.kind}): only one of them could be remembered under it; "
            f"rename the module, or exclude=['{block.name}']"
        )


def _check_biases(found: Inventory) -> None:
    """One bias beside two different weights would have to obey two projections at once."""
    owners: dict[Bias, Block] = {}
    for block in found.blocks.values():
        for bias in block.biases:
            other = owners.setdefault(bias, block)
            if other is not block:
                raise UnsupportedError(
                    f"'{other.name}' and '{block.name}' share the bias '{bias.parameter}' but not "
                    "their weights: no projection holds both; untie them or "
                    f"exclude=['{bias.parameter}']"
                )


def _share_token_biases(found: Inventory) -> None:
    """An embedding tied to an output layer: a token that is held needs its output bias held too."""
    for name, block in found.blocks.items():
        if block.layout == "tokens":
            tied = [other for other in found.of_weight[block.weight] if other != name]
            biases = tuple(bias for other in tied for bias in found.blocks[other].biases)
            found.blocks[name] = replace(block, biases=biases)


def _find_the_rest(found: Inventory, model: nn.Module) -> None:
    """Plain parameters, and those of layers that nobody taught us."""
    covered = {name for block in found.blocks.values() for name in block.parameters}
    covered |= set(found.norm_parameters()) | found.excluded
    names = found.names
    for module in model.modules():
        mine = [names[id(p)] for p in module.parameters(recurse=False)]
        rest = [name for name in mine if name not in covered]
        if rest:
            found.owners[module] = rest
        for name in rest:
            if _holds_plain(module):
                found.plain[name] = found.parameters[name]
            else:
                found.unsupported[name] = type(module).__name__


def _holds_plain(module: nn.Module) -> bool:
    """Whether a module has layers of its own: what it owns beside them is no layer's weight.

    A class token or a table of positions stands beside the layers that use it. A module without
    children is a layer itself, and a parametrization computes a layer's weight.
    """
    if isinstance(module, parametrize.ParametrizationList) or parametrize.is_parametrized(module):
        return False
    return next(module.children(), None) is not None


def reject_unsupported(found: Inventory) -> None:
    """Say which parameters cannot be protected, and the four ways out."""
    trainable = {
        name: owner
        for name, owner in found.unsupported.items()
        if name in found.parameters and found.parameters[name].requires_grad
    }
    if trainable:
        listed = ", ".join(f"'{name}' ({owner})" for name, owner in list(trainable.items())[:8])
        more = f" and {len(trainable) - 8} more" if len(trainable) > 8 else ""
        raise UnsupportedError(
            f"no null space is known for {listed}{more}. Teach nscl the layer with "
            "@nscl.register_layer, leave it free with exclude=[...] or unsupported='train', "
            "or hold it still with unsupported='freeze'"
        )


def reject_empty(found: Inventory) -> None:
    """A model in which nothing can be protected is a mistake, not a success."""
    if not found.blocks:
        raise UnsupportedError(
            "the model has no layer that can be protected (after exclude): it needs at least one "
            "Linear, convolution, Embedding, MultiheadAttention or registered layer"
        )
    if not any(p.requires_grad for p in found.parameters.values()):
        raise UnsupportedError(
            "every parameter of the model is frozen (requires_grad=False): nothing can be "
            "forgotten; unfreeze what you mean to train first"
        )
