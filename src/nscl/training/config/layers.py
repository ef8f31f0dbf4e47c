"""Layers of settings, the stronger over the weaker; and one that is read from a TOML file."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nscl.training.config.schema import ConfigError

Settings = Mapping[str, Any]  # nested, with the names of RunConfig's fields

TABLES = ("options", "optim", "data", "model", "sweep")  # settings that hold others


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second one winning; None there means "not set".

    Except in a method's own options, where None is a value.

    >>> merge({"seed": 1, "optim": {"lr": 0.1, "epochs": 5}}, {"seed": None, "optim": {"lr": 0.2}})
    {'seed': 1, 'optim': {'lr': 0.2, 'epochs': 5}}
    """
    for layer in (base, over):
        _check_tables(layer)
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if key == "options" and isinstance(value, Mapping):
            result[key] = {**(below or {}), **value}
        elif isinstance(value, Mapping):
            result[key] = merge(below if isinstance(below, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result


def _check_tables(settings: Mapping[str, Any]) -> None:
    """Refuse a bare value in place of a table: below another layer it would be lost."""
    for name in TABLES:
        value = settings.get(name)
        if value is not None and not isinstance(value, Mapping | BaseModel):
            raise ConfigError(
                f"option {name!r} is a table of settings, {name}.NAME = VALUE; not {value!r}"
            )


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a TOML file, with the names of the command line."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as problem:
        raise ConfigError(f"there is no file {path}") from problem
    except IsADirectoryError as problem:
        raise ConfigError(f"{path} is a folder: name the TOML file") from problem
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror or problem}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not a TOML file: {problem}") from problem
