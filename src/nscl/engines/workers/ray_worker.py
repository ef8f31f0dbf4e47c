"""One run in a Ray worker: the same training, with its output in the run's log."""

import platform
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path


def train(text: str, log: str, folder: str) -> tuple[str, str]:
    """Train the run of a configuration; returns how it ended and the one-line error, if any.

    Errors that the user can fix are returned, not raised, because they must not be retried. A
    worker that dies returns nothing, and Ray starts the run again from its checkpoint.
    """
    from nscl.errors import NsclError
    from nscl.results import RunLockedError
    from nscl.results.writing import make_folder
    from nscl.training.config.schema import RunConfig
    from nscl.training.display.display import Lines
    from nscl.training.experiment import run
    from nscl.training.process.interrupt import InterruptedRunError

    sys.path.insert(0, folder)  # package.module:Class of the folder the user works in
    make_folder(Path(log).parent)
    with Path(log).open("a", buffering=1) as sink, redirect_stdout(sink):
        print(f"running on {platform.node()}")  # the engine sees by this line that it began
        try:
            run(RunConfig.model_validate_json(text), display=Lines())
        except InterruptedRunError as problem:
            return "stopped", str(problem)
        except NsclError as problem:
            print(f"nscl: {problem}")
            return "locked" if isinstance(problem, RunLockedError) else "failed", str(problem)
        except Exception as problem:
            traceback.print_exc(file=sink)
            return "failed", f"{type(problem).__name__}: {problem}"
    return "done", ""
