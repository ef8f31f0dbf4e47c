"""Flags of commands that are settings of a run: taken from ``RunConfig``, not written again.

A command names the settings it takes; their types, defaults, limits and help are those of
``RunConfig``. Only help that would be wrong for the command is replaced. Settings that are typed
often have a short name beside their full one.
"""

from collections.abc import Collection, Mapping
from copy import copy
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter
from pydantic import BaseModel, create_model

from nscl.training.config.schema import Part, RunConfig
from nscl.training.config.short_names import short_name

M = TypeVar("M", bound=BaseModel)
MODEL = "model.name"  # cyclopts takes --model for all of the table; app.py hands it on to this one


def settings_type(names: Collection[str], *, help: Mapping[str, str] | None = None) -> Any:  # noqa: A002
    """A model with some fields of ``RunConfig``, for a parameter of a command.

    >>> Place = settings_type(["device", "threads"], help={"threads": "Of each run."})
    >>> given(Place(threads=2)), Place.model_fields["threads"].description
    ({'threads': 2}, 'Of each run.')
    """
    return create_model("RunSettings", __base__=Part, **_fields(RunConfig, names, help or {}))


def _fields(
    kind: type[BaseModel], names: Collection[str], texts: Mapping[str, str], prefix: str = ""
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name in names:
            own = copy(field)
            own.description = texts.get(name, field.description)
            fields[name] = (_with_short_names(field.annotation, f"{prefix}{name}"), own)
    return fields


def _with_short_names(annotation: Any, name: str) -> Any:
    """The type of a setting with its short flag, also of those in a table."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        inner = _fields(annotation, annotation.model_fields, {}, f"{name}.")
        return create_model(annotation.__name__, __base__=annotation, **inner)
    short = None if name == MODEL else short_name(name)
    if short is None:
        return annotation
    return Annotated[annotation, Parameter(alias=f"--{short.replace('_', '-')}")]


def all_settings_but(*names: str) -> list[str]:
    """Names of the settings of a run, without some."""
    return [name for name in RunConfig.model_fields if name not in names]


def nothing_given(kind: type[M]) -> M:
    """A model of which the user has set nothing, required fields neither."""
    return kind.model_construct()


def given(settings: BaseModel) -> dict[str, Any]:
    """The settings that the user has set, and nothing else."""
    return settings.model_dump(exclude_unset=True)
