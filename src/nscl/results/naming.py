"""The name of a run: benchmark, method and seed for people, a hash for certainty."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from nscl.results.errors import FormatError, RunMismatchError

LONGEST_SLUG = 48


def canonical_json(config: Mapping[str, Any]) -> str:
    """One text per configuration, whatever the order of its keys."""
    try:
        return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FormatError(f"the configuration is not plain JSON data: {error}") from error


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal; its first eight digits are in the run's name.

    >>> config_hash({"a": 1, "b": 2}) == config_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(canonical_json(config).encode()).hexdigest()


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names to values; an empty table is a value.

    >>> flat({"optim": {"lr": 0.1}, "seed": 0})
    {'optim.lr': 0.1, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def slug(name: str) -> str:
    """Make a benchmark's or method's name safe as part of a file name.

    >>> slug("folder:/data/my birds"), slug("package.module:Method")
    ('folder-data-my-birds', 'package.module-Method')
    """
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "unnamed"
    if len(plain) <= LONGEST_SLUG:
        return plain
    # Both ends of a long path matter: the kind of benchmark, and the name of the folder.
    head, tail = plain[:12].rstrip("-."), plain[-(LONGEST_SLUG - 14) :].lstrip("-.")
    return f"{head}--{tail}"


def recorded_preset(name: str) -> str:
    """The preset's name in ``config.json``, and so in the hash: version 1 had no number.

    >>> recorded_preset("cpu-1"), recorded_preset("cpu-2")
    ('cpu', 'cpu-2')
    """
    return "cpu" if name == "cpu-1" else name


def preset_of_record(name: str) -> str:
    """The preset that ``config.json`` means, by the name to type.

    >>> preset_of_record("cpu"), preset_of_record("cpu-2")
    ('cpu-1', 'cpu-2')
    """
    return "cpu-1" if name == "cpu" else name


def run_name(*, benchmark: str, method: str, seed: int, config: Mapping[str, Any]) -> str:
    """Name the folder of a run: ``<benchmark>-<method>-<seed>-<hash8>``."""
    return name_with_hash(benchmark, method, seed, config_hash(config))


def name_with_hash(benchmark: str, method: str, seed: int, digest: str) -> str:
    """The same name where the hash of the configuration is known already."""
    if type(seed) is not int or seed < 0:
        raise RunMismatchError(f"a seed is an integer from 0 on, got {seed!r}")
    return f"{slug(benchmark)}-{slug(method)}-{seed}-{digest[:8]}"
