"""Short names of settings that are typed often: ``--lr`` for ``--optim.lr``.

The command line, files and Python take both names; a run's folder has the full one.
"""

from collections.abc import Mapping
from typing import Any

from nscl.training.config.errors import ConfigError

SHORT_NAMES: Mapping[str, str] = {
    "tasks": "data.tasks",
    "order": "data.order",
    "epochs": "optim.epochs",
    "lr": "optim.lr",
    "batch_size": "optim.batch_size",
    "width": "model.width",
    "model": "model.name",
}


def full_name(name: str) -> str:
    """The full name of a setting that may be typed short.

    >>> full_name("batch-size"), full_name("method.a")
    ('optim.batch_size', 'method.a')
    """
    return SHORT_NAMES.get(name.replace("-", "_"), name)


def with_full_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings, each under its full name in its table; one with two names is refused.

    ``model`` is the name of a network, unless it is a table.

    >>> with_full_names({"lr": 0.1, "model": "mlp", "optim": {"epochs": 2}})
    {'optim': {'epochs': 2, 'lr': 0.1}, 'model': {'name': 'mlp'}}
    """
    short = {name: value for name, value in settings.items() if _is_short(name, value)}
    found = {name: value for name, value in settings.items() if name not in short}
    for name, value in short.items():
        if value is None:  # not set
            continue
        table, _, key = SHORT_NAMES[name].partition(".")
        inside = _as_mapping(found.get(table, {}))
        if key in _given(inside):
            raise ConfigError(
                f"option {name!r} is short for '{table}.{key}', which is given too: leave one out"
            )
        if isinstance(inside, Mapping):  # a bare value in place of a table is refused elsewhere
            found[table] = {**inside, key: value}
    return found


def _is_short(name: str, value: object) -> bool:
    return name in SHORT_NAMES and (name != "model" or isinstance(value, str))


def _as_mapping(table: Any) -> Any:
    """What is set in a table that was made by hand, such as ``Optim(epochs=2)``."""
    return table.model_dump(exclude_unset=True) if hasattr(table, "model_dump") else table


def _given(table: object) -> set[str]:
    """Names that have a value in a table of settings."""
    return {k for k, v in table.items() if v is not None} if isinstance(table, Mapping) else set()


def short_name(name: str) -> str | None:
    """The short name of a setting, if it has one.

    >>> short_name("optim.lr"), short_name("optim.gamma")
    ('lr', None)
    """
    return next((short for short, full in SHORT_NAMES.items() if full == name), None)
