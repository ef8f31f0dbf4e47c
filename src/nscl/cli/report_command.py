"""``nscl report``: tables, figures and a page from finished or unfinished runs (no torch)."""

import sys
from pathlib import Path


def report(*runs: Path, out: Path = Path("report"), quiet: bool = False) -> int:
    """Write tables, figures and one self-contained page about runs.

    Parameters
    ----------
    runs
        Folders of runs, folders that hold many of them, or result files.
    out
        The report's folder: new, empty, or a former report, which is replaced.
    quiet
        Show nothing but errors.
    """
    from nscl.engines.wording import counted
    from nscl.reporting import ReportError, write_report

    if not runs:
        raise ReportError("say which runs: nscl report runs")
    written = write_report(runs, out)
    for path, reason in written.skipped:
        print(f"nscl: passed over {path}: {reason}", file=sys.stderr)
    if not quiet:
        for section, figure in written.left_out:
            print(f"left out of {section}: {figure.name} ({figure.reason})")
        print(f"{counted(written.runs)}, {len(written.files)} files: {written.page}")
    return 0
