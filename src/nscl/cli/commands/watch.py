"""``nscl watch``: the live report of runs that go on, for this machine only (no torch)."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path

from nscl.cli.integer_option import Integer

LOOK_EVERY = 0.2  # seconds


def watch(*runs: Path, port: Integer = 0) -> int:
    """Serve the live report of runs on 127.0.0.1 until Ctrl-C; the page reloads itself.

    Parameters
    ----------
    runs
        Folders of runs, folders that hold or will hold many of them, or result files. What is
        not there yet is waited for.
    port
        The port; without one a free port is taken.
    """
    from nscl.reporting import ReportError, serving

    if not runs:
        raise ReportError("no runs: name their folder, as in nscl watch runs")
    # A shell that starts it in the background makes it ignore Ctrl-C, which should end it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _await(runs)
        with serving(runs, port=port) as server:
            print(f"live report: {server.url} (Ctrl-C ends it)", flush=True)
            server.serve_forever(poll_interval=LOOK_EVERY)
    except KeyboardInterrupt:
        print("\nended")
    return 0


def _await(paths: Sequence[Path]) -> None:
    """Wait until all of them exist; a run makes its folder when it starts."""
    missing = [path for path in paths if not _is_there(path)]
    if missing:
        names = ", ".join(map(str, missing))
        print(f"waiting for {names}, not there yet (Ctrl-C ends it)", flush=True)
    while not all(_is_there(path) for path in missing):
        time.sleep(LOOK_EVERY)


def _is_there(path: Path) -> bool:
    """Whether it exists, or is a pattern that fits something."""
    from nscl.results import find_runs

    return all(place.exists() for place, _ in find_runs([path]).skipped)
