"""Whether a model has the weights that a memory was saved with.

A memory file holds the reference weights, those of the last ``remember``. Training goes on after
it, so the file also holds a digest of each weight that had moved by the time of ``save``. A model
that agrees with either of the two, parameter by parameter, belongs to the memory. Every other
difference is found exactly, but not explained: the model may have been trained further after
``save``, or it may be another model.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from nscl.core.distributed.fsdp import whole
from nscl.core.model.block import Block
from nscl.core.report import listed


def tensor_digest(tensor: Tensor) -> str:
    """A short fingerprint of a tensor's dtype, shape and bytes.

    >>> tensor_digest(torch.zeros(2)) == tensor_digest(torch.zeros(2).clone())
    True
    >>> tensor_digest(torch.zeros(2)) == tensor_digest(torch.tensor([0.0, 1e-30]))
    False
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    found = hashlib.blake2b(f"{flat.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
    found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()


def digests_of_moved(
    reference: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
) -> dict[str, str]:
    """Digests of the parameters that have moved away from the reference.

    Parameters that are gone or have another shape are left out: ``load`` raises for those. Sharded
    parameters are gathered for this, so every rank must call it.
    """
    known = {
        name: tensor
        for name, tensor in reference.items()
        if name in parameters and parameters[name].shape == tensor.shape
    }
    return {name: tensor_digest(now) for name, now in _moved(known, parameters)}


def differing_layers(
    reference: Mapping[str, Tensor],
    digests: Mapping[str, str],
    parameters: Mapping[str, Tensor],
    blocks: Mapping[str, Block],
) -> list[str]:
    """Layers whose weights are neither the reference nor those digested by ``save``.

    The reference is compared in the parameter's own dtype: converting a model does not change it.
    Sharded parameters are gathered for this, so every rank must call it.
    """
    moved = _moved(reference, parameters)
    return _layers_of(
        [name for name, now in moved if digests.get(name) != tensor_digest(now)], blocks
    )


def _moved(
    reference: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    # Sorted: shards must be gathered in the same order on all ranks.
    for name in sorted(reference):
        now = whole(parameters[name].detach()).cpu()
        if not torch.equal(now, whole(reference[name]).to("cpu", now.dtype)):
            yield name, now


def _layers_of(parameters: Sequence[str], blocks: Mapping[str, Block]) -> list[str]:
    """The layers that these parameters belong to, in the model's order; other modules after."""
    names = set(parameters)
    found = [block.name for block in blocks.values() if names & {*block.parameters}]
    in_blocks = {name for block in blocks.values() for name in block.parameters}
    others = [n.rpartition(".")[0] or n for n in parameters if n not in in_blocks]
    return list(dict.fromkeys([*found, *others]))


def describe_other_weights(layers: Sequence[str], *, pulls: bool) -> Iterator[str]:
    """The warning that memory and model have different weights."""
    if layers:
        pulled = " acts_on='displacement' will pull them back there with the next step."
        yield (
            f"this memory was made of other weights than the model has in {listed(layers)}."
            f"{pulled if pulls else ''} If they were trained further since then, go on; if not, "
            f"load the memory's own weights, or memory.forget({layers[0]!r}) if the layer is new"
        )
