"""The parts of a model: blocks that can be projected, norm layers, and unsupported layers.

Built from the model each time it is needed, so layers may be added at any time. Nothing is stored
on modules or parameters: state elsewhere is keyed by the qualified names found here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor, nn
from torch.nn.utils import parametrize

from nscl.core.model import attention as _attention  # noqa: F401  (registers MultiheadAttention)
from nscl.core.model import library as _library  # noqa: F401  (registers recognisers)
from nscl.core.model.block import Bias, Block
from nscl.core.model.elementwise import is_norm, is_plain
from nscl.core.model.layer_types import LayerType, Matrix, layer_type_of
from nscl.core.model.library.projections import weights_given_away
from nscl.core.model.name_patterns import clean, excluded, is_meant
from nscl.core.model.shared_storage import reject_overlaps
from nscl.core.model.unsupported import (
    check_biases,
    check_dtype,
    check_max_norm,
    check_name,
    check_parameters,
    check_same_matrix,
)
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
    computed: dict[nn.Module, str] = field(default_factory=dict)  # whose weight is no parameter
    unsupported: dict[str, str] = field(default_factory=dict)  # parameter → reason
    owners: dict[nn.Module, list[str]] = field(default_factory=dict)  # of these two kinds
    excluded: set[str] = field(default_factory=set)
    excluded_norms: set[str] = field(default_factory=set)
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    of_weight: dict[str, list[str]] = field(default_factory=dict)  # blocks by parameter

    @cached_property  # used for each layer: a new dict each time would be quadratic
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
    check_parameters(found.parameters)
    found.excluded = excluded(model, found.parameters, exclude)
    given_away: set[nn.Module] = set()
    for name, module in model.named_modules():
        given_away.update(weights_given_away(module))
        if is_norm(module):
            found.norms[clean(name)] = module
        elif parametrize.is_parametrized(module) or module in given_away:
            found.computed[module] = clean(name)
        else:
            layer_type = layer_type_of(module)
            if layer_type is not None:
                _add_layer(found, clean(name), module, layer_type)
    found.excluded_norms = {name for name in found.norms if is_meant(name, exclude)}
    check_biases(found.blocks.values())
    reject_overlaps(found.parameters, found.excluded)
    _share_token_biases(found)
    _find_others(found, model)
    return found


def _add_layer(found: Inventory, name: str, module: nn.Module, layer_type: LayerType) -> None:
    names = found.names
    for matrix in layer_type.matrices(module):
        weight = _get(module, matrix.weight)
        if weight is None or id(weight) not in names:
            if weight is not None and "." not in matrix.weight:  # a child's is the child's own
                found.computed[module] = name
            found.unsupported[f"{name}.{matrix.weight}"] = f"{type(module).__name__} without it"
            found.uses.setdefault(module, []).append(Use("", None))
            continue
        if names[id(weight)] in found.excluded:
            found.uses.setdefault(module, []).append(Use("", None))
            continue
        check_dtype(names[id(weight)], weight)
        check_max_norm(module, name)
        block = _block(found, name, module, matrix, weight)
        found.uses.setdefault(module, []).append(_merge(found, block))


def _get(module: nn.Module, path: str | None) -> Tensor | None:
    if path is None:
        return None
    owner, _, attribute = path.rpartition(".")
    value = getattr(module.get_submodule(owner), attribute, None)
    return value if isinstance(value, Tensor) else None


def _block(found: Inventory, name: str, module: nn.Module, matrix: Matrix, weight: Tensor) -> Block:
    kind, names = type(module).__name__.removeprefix("FSDP"), found.names
    # A bias that is not a parameter (a buffer, say) does not move and needs no feature.
    bias = names.get(id(_get(module, matrix.bias)))
    groups, stop, features = _extent(matrix, weight)
    return Block(
        name=f"{name}.{matrix.label}".strip(".") if matrix.label else name or "model",
        kind=f"{kind}.{matrix.label}" if matrix.label else kind,
        weight=names[id(weight)],
        start=matrix.start,
        stop=stop if matrix.stop is None else matrix.stop,
        features=features,
        groups=groups,
        layout=matrix.layout,
        biases=() if bias is None or bias in found.excluded else (Bias(bias, matrix.bias_start),),
    )


def _extent(matrix: Matrix, weight: Tensor) -> tuple[int, int, int]:
    """Groups of a matrix, where its outputs end in the parameter, and its features per group."""
    size, groups = weight.shape, matrix.groups
    if matrix.layout == "tokens":
        return groups, size[0], size[0]
    if matrix.layout == "columns":
        return groups, size[1], size[0]
    if matrix.layout == "stacked":
        return size[0], size[0], size[2]
    if matrix.layout == "transposed":
        return groups, size[0], size[0] // groups * size[2:].numel()
    return groups, size[0], size[1:].numel()


def _merge(found: Inventory, block: Block) -> Use:
    """Let modules that share a weight share its block: every use counts, each bias is a feature."""
    for name in found.of_weight.get(block.weight, []):
        known = found.blocks[name]
        overlap = known.start < block.stop and block.start < known.stop
        if not overlap or {known.layout, block.layout} == {"rows", "tokens"}:
            continue
        check_same_matrix(known, block)
        biases = known.biases
        for bias in block.biases:
            if bias not in biases:
                biases = (*biases, bias)
        found.blocks[name] = replace(known, biases=biases)
        return Use(name, biases.index(block.biases[0]) if block.biases else None)
    check_name(found.blocks.get(block.name), block)
    found.blocks[block.name] = block
    found.of_weight.setdefault(block.weight, []).append(block.name)
    return Use(block.name, 0 if block.biases else None)


def _share_token_biases(found: Inventory) -> None:
    """An embedding tied to an output layer: a token that is held needs its output bias held too."""
    for name, block in found.blocks.items():
        if block.layout == "tokens":
            tied = [other for other in found.of_weight[block.weight] if other != name]
            biases = tuple(bias for other in tied for bias in found.blocks[other].biases)
            found.blocks[name] = replace(block, biases=biases)


def _find_others(found: Inventory, model: nn.Module) -> None:
    """Plain parameters, and those of layers without a registered type."""
    covered = {name for block in found.blocks.values() for name in block.parameters}
    covered |= set(found.norm_parameters()) | found.excluded
    names = found.names
    for module in model.modules():
        mine = [names[id(p)] for p in module.parameters(recurse=False)]
        rest = [name for name in mine if name not in covered]
        if rest:
            found.owners[module] = rest
        own = [(name.rpartition(".")[2], found.parameters[name]) for name in rest]
        if module in found.computed or is_plain(module, own):
            found.plain |= {name: found.parameters[name] for name in rest}
        else:
            found.unsupported |= dict.fromkeys(rest, type(module).__name__)


def reject_unsupported(found: Inventory) -> None:
    """Raise for parameters that cannot be protected, with the four ways out."""
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
