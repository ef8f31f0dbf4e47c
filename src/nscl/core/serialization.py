"""A memory on disk: one safetensors file with versioned metadata, no pickle, written atomically.

It holds what cannot be recomputed: packed covariance sums, the weights they were taken at, EWC
anchors, running statistics. Eigenvectors and projections are rebuilt on load.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from nscl._version import __version__
from nscl.atomic import replacing_path
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.sharing.shared_values import mapped_once
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.distributed.collectives import numbers
from nscl.core.distributed.fsdp import whole
from nscl.core.model.block import Bias, Block
from nscl.core.norms.fisher import Anchor
from nscl.core.projection.rules import rule_from_dict, rule_to_dict
from nscl.core.state import Placed, State
from nscl.errors import MemoryFileError

FORMAT, VERSION = "nscl-memory", 3


def to_tensors(state: State) -> dict[str, Tensor]:
    """All tensors of a state under flat names."""
    sums = mapped_once(state.covariances, lambda covariance: covariance.sums)
    tensors = {f"covariance/{name}": tensor for name, tensor in sums.items()}
    tensors |= {f"reference/{name}": whole(t) for name, t in state.reference.items()}
    tensors |= {f"gradient/{name}": g.sums for name, g in state.gradients.items()}
    tensors |= {f"rest/{name}": whole(t) for name, t in state.rest.items()}
    for name, anchor in state.anchors.items():
        tensors |= {f"fisher/{name}": anchor.fisher, f"pull/{name}": anchor.pull}
    for name, kept in state.statistics.items():
        tensors |= {f"statistics/{name}/{key}": value for key, value in kept.items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def to_metadata(
    state: State, options: Mapping[str, Any], digests: Mapping[str, str]
) -> dict[str, Any]:
    """Everything that is not a tensor, ready for JSON.

    ``digests`` recognise the model's weights where they have moved away from the reference.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "nscl": __version__,
        "tasks": state.tasks,
        "options": dict(options),
        "blocks": {
            name: {
                **state.blocks[name].signature(),
                "seen": _seen(c),
            }
            for name, c in state.covariances.items()
        },
        "gradients": {name: _seen(g) for name, g in state.gradients.items()},
        "batches": {name: anchor.batches for name, anchor in state.anchors.items()},
        "held": sorted(state.held),
        "adapters": {name: _written(adapter) for name, adapter in state.adapters.items()},
        "frozen": sorted(state.frozen),
        "digests": dict(digests),
    }


def from_parts(metadata: Any, tensors: Mapping[str, Tensor]) -> State:
    """A state without its spectra and projections, which the caller rebuilds."""
    _check_metadata(metadata)
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise MemoryFileError(
                f"this memory is incomplete: '{name}' is not a tensor; load another copy"
            )
    try:
        return State(
            blocks={name: _block(name, written) for name, written in metadata["blocks"].items()},
            covariances=_covariances(metadata, tensors),
            gradients={
                name: _covariance(tensors[f"gradient/{name}"].double(), seen)
                for name, seen in metadata.get("gradients", {}).items()
            },
            reference=_under(tensors, "reference/"),
            rest=_under(tensors, "rest/"),
            anchors={
                name: Anchor(tensors[f"fisher/{name}"], tensors[f"pull/{name}"], batches)
                for name, batches in metadata["batches"].items()
            },
            held=frozenset(metadata["held"]),
            statistics=_statistics(tensors),
            adapters={n: _adapter(a) for n, a in metadata.get("adapters", {}).items()},
            frozen=frozenset(metadata.get("frozen", ())),
            tasks=metadata["tasks"],
        )
    except KeyError as problem:
        raise MemoryFileError(f"this memory is incomplete: {problem!r} is missing") from problem
    except (AttributeError, IndexError, TypeError, ValueError) as problem:
        raise MemoryFileError(
            f"this memory is incomplete or was edited ({problem}): load another copy"
        ) from problem


def _seen(covariance: Covariance) -> dict[str, Any]:
    """What belongs to a covariance's sums; a sketch also says what it has lost, per group."""
    seen: dict[str, Any] = {key: getattr(covariance, key) for key in ("rows", "tasks", "noise")}
    if isinstance(covariance, SketchedCovariance):
        lost, bound = covariance.lost.tolist(), covariance.bound.tolist()
        seen["sketch"] = {"rank": covariance.rank, "lost": lost, "bound": bound}
    return seen


def _covariances(
    metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Covariance]:
    """Covariances by layer; sums that lie in one memory belong to one object again."""
    made: dict[tuple[Any, ...], Covariance] = {}
    found = {}
    for name, written in metadata["blocks"].items():
        sums = tensors[f"covariance/{name}"].double()
        own = (name,) if not sums.numel() else (sums.data_ptr(), sums.shape, str(written["seen"]))
        if own not in made:
            made[own] = _covariance(sums, written["seen"])
        found[name] = made[own]
    return found


def _covariance(sums: Tensor, seen: Mapping[str, Any]) -> Covariance:
    written = dict(seen)
    sketch = written.pop("sketch", None)
    if sketch is None:
        return Covariance(sums, **written)
    lost, bound = (numbers(sketch[key]) for key in ("lost", "bound"))
    return SketchedCovariance(sums, **written, lost=lost, bound=bound, rank=sketch["rank"])


def read_options(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The options a memory was saved with, ready for its constructor."""
    _check_metadata(metadata)
    try:
        return {**metadata["options"], "rule": rule_from_dict(metadata["options"]["rule"])}
    except (KeyError, TypeError, ValueError) as problem:
        raise MemoryFileError(f"this memory's options cannot be read: {problem!r}") from problem


def read_digests(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Digests of weights that had moved when a memory was saved; older files have none."""
    digests: dict[str, str] = metadata.get("digests", {})
    return digests


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, Mapping) or metadata.get("format") != FORMAT:
        raise MemoryFileError("this is not a memory saved by nscl (no 'nscl-memory' mark in it)")
    if metadata.get("version", 0) > VERSION:
        raise MemoryFileError(
            f"this memory has format version {metadata['version']}, written by nscl "
            f"{metadata.get('nscl')}; this is nscl {__version__}, which reads up to version "
            f"{VERSION}: upgrade nscl"
        )


def _written(adapter: Placed) -> dict[str, Any]:
    rule = None if adapter.rule is None else rule_to_dict(adapter.rule)
    return {**vars(adapter), "rule": rule}


def _adapter(written: Mapping[str, Any]) -> Placed:
    rule = written["rule"]
    return Placed(**{**written, "rule": None if rule is None else rule_from_dict(rule)})


def _block(name: str, written: Mapping[str, Any]) -> Block:
    return Block(
        name=name,
        kind=written["kind"],
        weight=written["weight"],
        start=written["rows"][0],
        stop=written["rows"][1],
        features=written["features"],
        groups=written["groups"],
        layout=written["layout"],
        biases=tuple(Bias(parameter, start) for parameter, start in written["biases"]),
    )


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _statistics(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _under(tensors, "statistics/").items():
        layer, _, key = name.rpartition("/")
        found.setdefault(layer, {})[key] = tensor
    return found


def save(
    path: str | Path, state: State, options: Mapping[str, Any], digests: Mapping[str, str]
) -> None:
    """Write a memory: a complete new file takes the place of the old one, or nothing happens."""
    target = Path(os.path.realpath(path))  # a link stays a link, its target is replaced
    tensors = to_tensors(state)
    copies = _copies(tensors)
    written = {**to_metadata(state, options, digests), "copies": copies}
    metadata = {"nscl": json.dumps(written)}
    # Tensors that share storage (tied weights) are refused by safetensors: clone them.
    tensors = {name: t.clone() for name, t in tensors.items() if name not in copies}
    try:
        with replacing_path(target) as temporary:
            temporary.touch(exist_ok=False)
            usual = temporary.stat().st_mode  # safetensors writes for the owner only
            save_file(tensors, temporary, metadata)
            temporary.chmod(usual)
    except (OSError, SafetensorError) as problem:
        raise MemoryFileError(
            f"{path} cannot be written ({problem}); what was there is untouched: "
            "free some space or choose another place"
        ) from problem


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Covariances that are one and the same, each with the name under which it is written."""
    first: dict[tuple[int, torch.Size], str] = {}
    found = {}
    for name, tensor in tensors.items():
        if name.startswith("covariance/") and tensor.numel():
            of = first.setdefault((tensor.data_ptr(), tensor.shape), name)
            if of != name:
                found[name] = of
    return found


def load(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read metadata and tensors; a truncated or foreign file is an error that says so."""
    try:
        with safe_open(path, framework="pt") as file:
            written = (file.metadata() or {}).get("nscl")
        if written is None:
            raise MemoryFileError(f"{path} is a safetensors file, but not a memory saved by nscl")
        # Copied: a mapped file could be overwritten or truncated while it is in use.
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        metadata = json.loads(written)
        copies = metadata.get("copies", {}) if isinstance(metadata, Mapping) else {}
        return metadata, {
            **tensors,
            **{n: tensors[of] for n, of in copies.items() if of in tensors},
        }
    except FileNotFoundError as problem:
        raise MemoryFileError(f"{path} does not exist") from problem
    except (SafetensorError, json.JSONDecodeError, OSError) as problem:
        raise MemoryFileError(
            f"{path} is truncated or not a safetensors file ({problem}); "
            "copy it again from where it was saved"
        ) from problem
