"""The command that repeats a run: every setting written out, so that no default can differ."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from nscl.reporting.gather import Run
from nscl.results import flat, preset_of_record

_FIRST = ("benchmark", "method", "preset", "seed", "options")


def command(run: Run) -> str:
    """Return the shell command; on the same versions it makes a run of the same name.

    Settings that are null are left out: null is their default. A method's option may have another
    value in the preset, so its null is written out as ``none``.
    """
    config = run.config
    words = ["nscl", "run", run.benchmark, "--method", run.method]
    if config.get("preset") is not None:
        words += ["--preset", preset_of_record(str(config["preset"]))]
    words += ["--seed", str(run.seed)]
    words += _method_options(config.get("options") or {})
    for name, value in flat({k: v for k, v in config.items() if k not in _FIRST}).items():
        words += _option(name, value)
    return shlex.join(words + _place(run.environment))


def _method_options(options: Mapping[str, Any]) -> list[str]:
    """Options of a method one by one; all in one object if any is not a single value."""
    if any(isinstance(value, list | Mapping) for value in options.values()):
        return ["--options", json.dumps(options)]
    return [word for name, value in options.items() for word in (f"--method.{name}", _text(value))]


def _option(name: str, value: Any) -> list[str]:
    typed = name.replace("_", "-")
    if value is None or value == {}:
        return []
    if isinstance(value, bool):
        *path, last = typed.split(".")
        return ["--" + ".".join([*path, last if value else f"no-{last}"])]
    if isinstance(value, list):
        *path, last = typed.split(".")
        empty = ["--" + ".".join([*path, f"empty-{last}"])]
        return [word for item in value for word in (f"--{typed}", _text(item))] or empty
    return [f"--{typed}", _text(value)]


def _text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _place(environment: Mapping[str, Any]) -> list[str]:
    """Threads change the order of sums, and so last digits; a label is what reports call it."""
    threads, label = environment.get("threads"), environment.get("label")
    words = ["--threads", str(threads)] if isinstance(threads, int) else []
    return words + (["--label", label] if isinstance(label, str) else [])
