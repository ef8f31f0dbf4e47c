"""A memory on disk: one safetensors file with versioned metadata, no pickle, written atomically.

Saved is what cannot be recomputed: packed covariance sums, the weights they were taken at, EWC
anchors, running statistics. Eigenvectors and projections are rebuilt on load.
"""

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from nscl._version import __version__
from nscl.core.anchors import Anchor
from nscl.core.blocks import Bias, Block
from nscl.core.covariance import Covariance
from nscl.core.rules import rule_from_dict
from nscl.core.shards import whole
from nscl.core.state import State
from nscl.errors import MemoryFileError

FORMAT, VERSION = "nscl-memory", 2


def to_tensors(state: State) -> dict[str, Tensor]:
    """All tensors of a state under flat names."""
    tensors = {f"covariance/{name}": c.sums for name, c in state.covariances.items()}
    tensors |= {f"reference/{name}": whole(t) for name, t in state.reference.items()}
    tensors |= {f"gradient/{name}": g.sums for name, g in state.gradients.items()}
    tensors |= {f"rest/{name}": whole(t) for name, t in state.rest.items()}
    for name, anchor in state.anchors.items():
        tensors |= {f"fisher/{name}": anchor.fisher, f"pull/{name}": anchor.pull}
    for name, kept in state.statistics.items():
        tensors |= {f"statistics/{name}/{key}": value for key, value in kept.items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def to_metadata(state: State, options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that is not a tensor, ready for JSON."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "nscl": __version__,
        "tasks": state.tasks,
        "options": dict(options),
        "blocks": {
            name: {
                **state.blocks[name].signature(),
                "seen": {"rows": c.rows, "tasks": c.tasks, "noise": c.noise},
            }
            for name, c in state.covariances.items()
        },
        "gradients": {
            name: {"rows": g.rows, "tasks": g.tasks, "noise": g.noise}
            for name, g in state.gradients.items()
        },
        "batches": {name: anchor.batches for name, anchor in state.anchors.items()},
        "held": sorted(state.held),
    }


def from_parts(metadata: Any, tensors: Mapping[str, Tensor]) -> State:
    """A state without its spectra and projections, which the caller rebuilds."""
    _check_metadata(metadata)
    try:
        return State(
            blocks={name: _block(name, written) for name, written in metadata["blocks"].items()},
            covariances={
                name: Covariance(tensors[f"covariance/{name}"].double(), **written["seen"])
                for name, written in metadata["blocks"].items()
            },
            gradients={
                name: Covariance(tensors[f"gradient/{name}"].double(), **seen)
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
            tasks=metadata["tasks"],
        )
    except (KeyError, TypeError) as problem:
        raise MemoryFileError(f"this memory is incomplete: {problem!r} is missing") from problem


def read_options(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The options a memory was saved with, ready for its constructor."""
    _check_metadata(metadata)
    try:
        return {**metadata["options"], "rule": rule_from_dict(metadata["options"]["rule"])}
    except (KeyError, TypeError, ValueError) as problem:
        raise MemoryFileError(f"this memory's options cannot be read: {problem!r}") from problem


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, Mapping) or metadata.get("format") != FORMAT:
        raise MemoryFileError("this is no memory saved by nscl (no 'nscl-memory' mark in it)")
    if metadata.get("version", 0) > VERSION:
        raise MemoryFileError(
            f"this memory has format version {metadata['version']}, written by nscl "
            f"{metadata.get('nscl')}; this is nscl {__version__}, which reads up to version "
            f"{VERSION}: upgrade nscl"
        )


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


def save(path: str | Path, state: State, options: Mapping[str, Any]) -> None:
    """Write a memory: a whole new file takes the place of the old one, or nothing happens."""
    target = Path(os.path.realpath(path))  # a link stays one, and what it points to is replaced
    metadata = {"nscl": json.dumps(to_metadata(state, options))}
    # Tensors that share storage (tied weights) are refused by safetensors: clone them.
    tensors = {name: tensor.clone() for name, tensor in to_tensors(state).items()}
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    try:
        temporary.touch(exist_ok=False)
        usual = temporary.stat().st_mode  # safetensors writes for the owner only
        save_file(tensors, temporary, metadata)
        temporary.chmod(usual)
        _sync(temporary)
        temporary.replace(target)
        with suppress(OSError):  # not every file system can sync a folder
            _sync(target.parent)
    except (OSError, SafetensorError) as problem:
        raise MemoryFileError(
            f"{path} cannot be written ({problem}); what was there is untouched: "
            "make room or choose another place"
        ) from problem
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Make a file, or a rename in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read metadata and tensors; a truncated or foreign file is an error that says so."""
    try:
        with safe_open(path, framework="pt") as file:
            written = (file.metadata() or {}).get("nscl")
        if written is None:
            raise MemoryFileError(f"{path} is a safetensors file, but no memory saved by nscl")
        # Copied, because a mapped file can be overwritten or cut short under our feet.
        return json.loads(written), {name: t.clone() for name, t in load_file(path).items()}
    except FileNotFoundError as problem:
        raise MemoryFileError(f"{path} does not exist") from problem
    except (SafetensorError, json.JSONDecodeError, OSError) as problem:
        raise MemoryFileError(
            f"{path} is truncated or no safetensors file ({problem}); "
            "take it from where it was saved once more"
        ) from problem
