"""The process of one run: reads a configuration from standard input, trains, leaves its result.

Standard input stays open as long as the parent lives. When it ends, the parent is dead, and the
run saves its state and exits.
"""

import os
import signal
import sys
import threading
from types import FrameType

LOCKED = 75  # the exit code of a run that another process works on: EX_TEMPFAIL, try again later


def main() -> int:
    """Train one run; the exit code is that of ``nscl run``."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)  # while there is nothing to save yet
    text = sys.stdin.buffer.readline()
    threading.Thread(target=_watch_parent, daemon=True).start()
    # Late: torch takes seconds, and a stop in them should not wait.
    from nscl.errors import NsclError
    from nscl.results import RunLockedError
    from nscl.training.config.schema import RunConfig
    from nscl.training.display.display import Lines
    from nscl.training.experiment import run

    try:
        run(RunConfig.model_validate_json(text), display=Lines())
    except NsclError as problem:
        print(f"nscl: {problem}", file=sys.stderr)
        code = LOCKED if isinstance(problem, RunLockedError) else 2
        return int(getattr(problem, "exit_code", code))
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _watch_parent() -> None:
    while os.read(0, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
