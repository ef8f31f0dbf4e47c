"""``config.json``: the complete configuration of a run, and what it ran on."""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from nscl.results.errors import FormatError
from nscl.results.naming import canonical_json, config_hash, flat, name_with_hash
from nscl.results.records.reading import check_schema, read_json
from nscl.results.records.record import Count, Name, checked, record

SCHEMA = 1
WAY_OUT = "restore the file, or move the folder away and start the run again"


@record
class ConfigFile:
    """What ``config.json`` holds, except for the hash that protects it."""

    benchmark: Name
    method: Name
    seed: Count
    config: Mapping[str, Any]
    environment: Mapping[str, Any]

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the configuration; its first eight digits name the run."""
        return config_hash(self.config)

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return name_with_hash(self.benchmark, self.method, self.seed, self.hash)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "schema": SCHEMA,
            "benchmark": self.benchmark,
            "method": self.method,
            "seed": self.seed,
            "hash": self.hash,
            "config": dict(self.config),
            "environment": dict(self.environment),
        }

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read the file at ``path``; one that was edited by hand no longer fits its hash."""
        values = read_json(path, way_out=WAY_OUT)
        check_schema(values, known=SCHEMA, path=path)
        names = [f.name for f in dataclasses.fields(cls)]
        known = {name: values[name] for name in names if name in values}
        found = checked(cls, known, place=path, way_out=WAY_OUT)
        if values.get("hash") != found.hash:
            raise FormatError(
                f"{path} was changed after the run began (hash {str(values.get('hash'))[:8]}, "
                f"content {found.hash[:8]}): start a new run with the new configuration"
            )
        return found

    def difference(self, other: "ConfigFile") -> str:
        """Say where two runs differ, with both values; empty when they are the same run."""
        mine, its = _texts(self), _texts(other)
        names = [name for name in sorted(mine | its) if mine.get(name) != its.get(name)]
        listed = [f"{name}: {mine.get(name)} there, {its.get(name)} here" for name in names[:3]]
        more = [f"and {len(names) - 3} more"] if len(names) > 3 else []
        return "; ".join(listed + more)


def _texts(file: ConfigFile) -> dict[str, str]:
    """Dotted names to JSON texts, so that values compare as they are stored."""
    config = {f"config.{name}": _json(value) for name, value in flat(file.config).items()}
    return {"benchmark": file.benchmark, "method": file.method, "seed": str(file.seed), **config}


def _json(value: Any) -> str:
    return canonical_json({"": value})[4:-1]
