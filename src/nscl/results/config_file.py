"""``config.json``: the whole configuration of a run, and what it ran on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nscl.results.errors import FormatError
from nscl.results.naming import canonical_json, config_hash
from nscl.results.reading import check_schema, read_json

SCHEMA = 1
_KINDS = {"benchmark": str, "method": str, "seed": int, "config": dict, "environment": dict}


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """Who a run is: what ``config.json`` holds beside the hash that guards it."""

    benchmark: str
    method: str
    seed: int
    config: Mapping[str, Any]
    environment: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """SHA-256 of the configuration; its first eight digits name the run."""
        return config_hash(self.config)

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
        record = read_json(path)
        check_schema(record, known=SCHEMA, path=path)
        for name, kind in _KINDS.items():
            if not isinstance(record.get(name), kind):
                raise FormatError(
                    f"{path} is not the config.json of a run: {name} is no {kind.__name__}"
                )
        found = cls(**{name: record[name] for name in _KINDS})
        if record.get("hash") != found.hash:
            raise FormatError(
                f"{path} was changed after the run began (hash {str(record.get('hash'))[:8]}, "
                f"content {found.hash[:8]}): start a new run with the new configuration"
            )
        return found

    def difference(self, other: "ConfigFile") -> str:
        """Say where two runs differ, with both values; empty when they are the same run."""
        mine, its = _flat(self), _flat(other)
        names = [name for name in sorted(mine | its) if mine.get(name) != its.get(name)]
        told = [f"{name}: {mine.get(name)} there, {its.get(name)} here" for name in names[:3]]
        more = [f"and {len(names) - 3} more"] if len(names) > 3 else []
        return "; ".join(told + more)


def _flat(file: ConfigFile) -> dict[str, str]:
    """Dotted names to JSON texts, so that values compare as they are stored."""
    flat = {"benchmark": file.benchmark, "method": file.method, "seed": str(file.seed)}
    pending: list[tuple[str, Mapping[str, Any]]] = [("", file.config)]
    while pending:
        prefix, mapping = pending.pop()
        for key, value in mapping.items():
            if isinstance(value, Mapping) and value:
                pending.append((f"{prefix}{key}.", value))
            else:
                flat[f"config.{prefix}{key}"] = canonical_json({"": value})[4:-1]
    return flat
