"""The commands by name, one clear line for errors that the user can fix, and the exit codes.

0 done; 2 the user can fix it; 130 or 143 interrupted, the run can be resumed.
"""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nscl._version import __version__
from nscl.errors import NsclError

if TYPE_CHECKING:
    import cyclopts

COMMANDS = {
    "run": "Train a stream of tasks with one method.",
    "resume": "Continue a run that was interrupted.",
    "show": "Show what a run has reached: accuracy matrix, ACC, BWT, spectra.",
    "compare": "Run many methods over seeds, side by side, and print their table.",
    "sweep": "Run one method over a grid of any options, and print the table.",
    "tune": "Choose the strength of methods on other classes than those reported.",
    "report": "Write tables, figures and one self-contained page about runs.",
    "watch": "Serve a live report of runs while they go on.",
    "list": "List methods, benchmarks, models or presets.",
    "data": "List, check or fetch data sets.",
    "doctor": "Show what this machine has: torch, devices, data, optional packages.",
}
MANY_RUNS = ("compare", "sweep", "tune")
METHOD, OPTIONS = "--method.", "--options."  # as typed, and as the commands know it
MODEL = "--model"


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    sys.exit(call(sys.argv[1:] if argv is None else argv))


def call(argv: Sequence[str]) -> int:
    """Run a command; errors that the user can fix become one line."""
    try:
        import cyclopts
    except ImportError:
        return _print_error("the command line needs more packages: pip install 'nscl[lab]'")
    if "" not in sys.path:
        sys.path.insert(0, "")  # so that package.module:Class is found in the working folder
    try:
        result = _app()(
            [_full_option(token) for token in argv],
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except cyclopts.UnknownOptionError as problem:
        option = problem.token.keyword or problem.token.value
        typed = option.replace(OPTIONS, METHOD, 1)
        text = _no_method_options(argv[0], typed) if option.startswith(OPTIONS) else str(problem)
        return _print_error(" ".join(text.split()))
    except cyclopts.CycloptsError as problem:
        return _print_error(_wrong_value(problem) or " ".join(str(problem).split()))
    except NsclError as problem:
        return _print_error(str(problem), getattr(problem, "exit_code", 2))
    except KeyboardInterrupt:
        return _print_error("interrupted", 130)
    except BrokenPipeError:
        return 0
    return result if isinstance(result, int) else 0


def _app() -> "cyclopts.App":
    """All commands, each imported when it is called."""
    import cyclopts

    app = cyclopts.App(
        name="nscl",
        version=f"nscl {__version__}",
        help="Train a network on something new, without forgetting the old.",
        suppress_keyboard_interrupt=False,  # it would leave without a word
    )
    app.register_install_completion_command(name="--install-completion")
    for name, text in COMMANDS.items():
        folder = "many_runs" if name in MANY_RUNS else "commands"
        app.command(f"nscl.cli.{folder}.{name}:{name}", name=name, help=text)
    return app


def _full_option(token: str) -> str:
    """``--method.a`` is an option of the method, ``--method`` its name; ``--model`` likewise.

    Like all other options those of a method may be typed with hyphens.
    """
    if token == MODEL or token.startswith(f"{MODEL}="):
        return token.replace(MODEL, f"{MODEL}.name", 1)
    if not token.startswith(METHOD):
        return token
    name, *value = token.removeprefix(METHOD).split("=", 1)
    return "=".join([OPTIONS + name.replace("-", "_"), *value])


def _wrong_value(problem: Exception) -> str:
    """The option, what it may be and what was typed, where a setting refused its value."""
    from pydantic import ValidationError  # here, because it would make `nscl --help` slow

    from nscl.training.config.validation import wrong_value

    cause = problem.__cause__
    if isinstance(cause, ValidationError):
        return wrong_value(cause)
    switch = _NO_SWITCH.fullmatch(" ".join(str(problem).split()))
    return f"option {switch[1]}: must be true or false, not {switch[2]!r}" if switch else ""


_NO_SWITCH = re.compile(r'Invalid value for (\S+): unable to convert "(.*)" into bool\.')


def _no_method_options(command: str, typed: str) -> str:
    """What was typed, why it cannot be, and what to do instead."""
    if command != "compare":
        return f"{command} takes no {typed}: options of a method are for nscl run, sweep and tune"
    name = typed.removeprefix(METHOD)
    return (
        f"compare takes no {typed}, it runs many methods: write options.{name} under "
        f"[overrides.METHOD] in a plan (--plan FILE), or use nscl sweep --set method.{name}=..."
    )


def _print_error(message: str, code: int = 2) -> int:
    print(f"nscl: {message}", file=sys.stderr)
    return code
