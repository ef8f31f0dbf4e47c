"""``nscl watch``: the live report of runs that go on, for this machine only (no torch)."""

import signal
from pathlib import Path


def watch(*runs: Path, port: int = 0) -> int:
    """Serve the live report of runs on 127.0.0.1 until Ctrl-C; the page reloads itself.

    Parameters
    ----------
    runs
        Folders of runs, folders that hold or will hold many of them, or result files.
    port
        The port; without one a free port is taken.
    """
    from nscl.reporting import ReportError, serving

    if not runs:
        raise ReportError("say which runs: nscl watch runs")
    # A shell that starts it in the background has it ignore Ctrl-C; it said that Ctrl-C ends it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with serving(runs, port=port) as server:
        print(f"live report: {server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("\nended")
    return 0
