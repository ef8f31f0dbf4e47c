"""Parts of a model that cannot be protected: each check names the parameter and the way out."""

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from nscl.core.model.block import Bias, Block
from nscl.errors import UnsupportedError


def check_parameters(parameters: Mapping[str, nn.Parameter]) -> None:
    """Lazy parameters have no shape yet."""
    for name, parameter in parameters.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UnsupportedError(
                f"parameter '{name}' has no shape yet: run one batch through the lazy model first"
            )


def reject_meta(parameters: Mapping[str, nn.Parameter]) -> None:
    """Meta parameters have shapes to plan with, but no values to remember."""
    for name, parameter in parameters.items():
        if parameter.is_meta:
            raise UnsupportedError(
                f"parameter '{name}' is on the meta device and has no values: "
                "materialise the model (to_empty, load_state_dict) first"
            )


def check_dtype(name: str, weight: Tensor) -> None:
    """Integers and complex numbers cannot be projected."""
    if not weight.is_floating_point():
        raise UnsupportedError(
            f"parameter '{name}' is {weight.dtype}: only real floating-point weights can be "
            f"projected; leave it out with exclude=['{name}']"
        )


def check_max_norm(module: nn.Module, name: str) -> None:
    """An embedding may not rewrite its weights behind the optimizer."""
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        raise UnsupportedError(
            f"embedding '{name}' has max_norm, which rewrites weights in every forward pass "
            f"where no optimizer hook can hold them; drop max_norm or exclude=['{name}']"
        )


def check_same_matrix(known: Block, block: Block) -> None:
    """Modules that share a weight must see it as the same matrix."""
    views = [(b.layout, b.groups, b.features, b.start, b.stop) for b in (known, block)]
    if views[0] != views[1]:
        raise UnsupportedError(
            f"'{block.name}' and '{known.name}' share the parameter '{known.weight}' but "
            f"multiply it as {block.shape()} and as {known.shape()}: no projection holds "
            "both; untie them or exclude the parameter"
        )


def check_name(other: Block | None, block: Block) -> None:
    """A child of an attention may have the name of one of its matrices in reports and files."""
    if other is not None:
        raise UnsupportedError(
            f"'{block.name}' is the name of two matrices, '{other.weight}' ({other.kind}) and "
            f"'{block.weight}' ({block.kind}): rename the module, or exclude=['{block.name}']"
        )


def check_biases(blocks: Iterable[Block]) -> None:
    """One bias beside two different weights would have to obey two projections at once."""
    owners: dict[Bias, Block] = {}
    for block in blocks:
        for bias in block.biases:
            other = owners.setdefault(bias, block)
            if other is not block:
                raise UnsupportedError(
                    f"'{other.name}' and '{block.name}' share the bias '{bias.parameter}' but not "
                    "their weights: no projection holds both; untie them or "
                    f"exclude=['{bias.parameter}']"
                )
