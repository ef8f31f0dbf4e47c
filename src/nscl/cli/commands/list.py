"""``nscl list``: the names that other commands take (no torch)."""

from typing import Literal

from rich.table import Table

from nscl.cli.console import wide_console

What = Literal["methods", "benchmarks", "models", "presets", "scenarios"]


def list(what: What, /) -> int:  # noqa: A001
    """List methods, benchmarks, models, presets or scenarios.

    Parameters
    ----------
    what
        Which names.
    """
    tables = {
        "methods": _methods,
        "benchmarks": _benchmarks,
        "models": _models,
        "presets": _presets,
        "scenarios": _scenarios,
    }
    wide_console().print(tables[what]())
    return 0


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == columns[0])
    return table


def _methods() -> Table:
    from nscl.methods import METHODS

    table = _table("method", "stores", "needs", "what it does", "paper")
    for info in METHODS.values():
        table.add_row(info.name, info.stores, info.needs, info.description, info.paper)
    return table


def _benchmarks() -> Table:
    from nscl.data import list_benchmarks

    table = _table("benchmark", "tasks", "scenario", "description")
    for entry in list_benchmarks():
        table.add_row(entry.name, str(entry.tasks or "--data.tasks"), entry.scenario,
                      entry.description)  # fmt: skip
    return table


def _models() -> Table:
    from nscl.models import list_models

    table = _table("model", "description")
    for info in list_models():
        table.add_row(info.name, info.description)
    table.add_row(
        "package.module:factory", "a model of your own: a function from image_shape to a module"
    )
    return table


def _presets() -> Table:
    from nscl.training.config.presets import PRESETS

    table = _table("preset", "description")
    for name, function in PRESETS.items():
        table.add_row(name, (function.__doc__ or "").strip())
    table.add_row("cpu", "the newest version of it: cpu-2 for images, cpu-1 for texts")
    return table


def _scenarios() -> Table:
    from nscl.data.catalogue import SCENARIOS
    from nscl.methods import METHODS

    table = _table("scenario", "what it is", "methods that cannot")
    for name, description in SCENARIOS.items():
        cannot = (info.name for info in METHODS.values() if name not in info.scenarios)
        table.add_row(name, description, ", ".join(cannot) or "-")
    return table
