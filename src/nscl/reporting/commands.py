"""The command that repeats a run: every setting written out, so that no default can differ."""

import shlex
from collections.abc import Mapping
from typing import Any

from nscl.reporting.gather import Run
from nscl.reporting.series import flat

_FIRST = ("benchmark", "method", "preset", "seed")


def command(run: Run) -> str:
    """Return the shell command; on the same versions it makes a run of the same name.

    Settings that are null cannot be said and need not: they are null unless said.
    """
    config = run.config
    words = ["nscl", "run", run.benchmark, "--method", run.method]
    if config.get("preset") is not None:
        words += ["--preset", str(config["preset"])]
    words += ["--seed", str(run.seed)]
    for name, value in flat({k: v for k, v in config.items() if k not in _FIRST}).items():
        words += _option(name, value)
    return shlex.join(words + _place(run.environment))


def _option(name: str, value: Any) -> list[str]:
    method_own = name.startswith("options.")
    typed = name.replace("options.", "method.", 1) if method_own else name.replace("_", "-")
    if value is None or value == {}:
        return []
    if isinstance(value, bool) and not method_own:
        *path, last = typed.split(".")
        return ["--" + ".".join([*path, last if value else f"no-{last}"])]
    if isinstance(value, list):
        *path, last = typed.split(".")
        empty = ["--" + ".".join([*path, f"empty-{last}"])]
        return [word for item in value for word in (f"--{typed}", _text(item))] or empty
    return [f"--{typed}", _text(value)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(environment: Mapping[str, Any]) -> list[str]:
    """Threads change the order of sums, and so last digits."""
    threads = environment.get("threads")
    return ["--threads", str(threads)] if isinstance(threads, int) else []
