"""``nscl report``: tables, figures and a page from finished or unfinished runs (no torch)."""

import os
import sys
from pathlib import Path
from typing import Literal


def report(
    *runs: Path,
    out: Path = Path("report"),
    figures: Literal["none", "svg", "all"] = "all",
    highlight: tuple[str, ...] = (),
    quiet: bool = False,
) -> int:
    """Write tables, figures and one self-contained page about runs.

    Parameters
    ----------
    runs
        Folders of runs, folders that hold many of them, or result files.
    out
        The report's folder: new, empty, or an earlier report, which is replaced.
    figures
        Files of figures: none, svg, or all (SVG and PNG). Those that show the same as before stay.
    highlight
        Rows or methods whose curves stand out where there are more than eight, besides the best and
        the worst. Once for each.
    quiet
        Show nothing but errors.
    """
    from nscl.engines.display.text import count_runs
    from nscl.reporting import ReportError, write_report

    if not runs:
        raise ReportError("no runs: name their folder, as in nscl report runs")
    written = write_report(runs, out, figures=figures, processes=_cores(), highlight=highlight)
    for path, reason in written.skipped:
        print(f"nscl: skipped {path}: {reason}", file=sys.stderr)
    if not quiet:
        for section, figure in written.left_out:
            print(f"left out of {section}: {figure.name} ({figure.reason})")
        kept = f" ({len(written.kept)} of figures unchanged)" if written.kept else ""
        print(f"{count_runs(written.runs)}, {len(written.files)} files{kept}: {written.page}")
    return 0


def _cores() -> int:
    """Cores this process may use; the engines' own count would import all of their settings."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
