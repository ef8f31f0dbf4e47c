"""Versions, time and the kind of machine, as far as they explain the numbers of a run.

Nothing here names a person or a place: results are made to be shared.
"""

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nscl._version import __version__

_CHECKOUT = Path(__file__).resolve().parents[3]


def fingerprint() -> dict[str, str | int | float | None]:
    """Date, versions and kind of machine; None for what is not installed or cannot be known.

    ``load`` is that of the last minute before the run: the work of others.

    >>> sorted(fingerprint())  # doctest: +NORMALIZE_WHITESPACE
    ['commit', 'cpus', 'date', 'load', 'nscl', 'numpy', 'platform', 'processor', 'python', 'torch']
    """
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": _commit(),
        "nscl": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "load": machine_load(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
    }


def machine_load() -> float | None:
    """Processes that ran or waited for a processor, on average over the last minute.

    None where the system does not count them.
    """
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):  # Windows has no such function; some containers no numbers
        return None


@cache
def _commit() -> str | None:
    """The commit of a source checkout, "+" if files differ from it; None for an installed package.

    An installed package may lie inside the checkout of something else: that one's commit says
    nothing about this code.
    """
    if not (_CHECKOUT / ".git").exists() or not (_CHECKOUT / "src" / "nscl").is_dir():
        return None
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src") if commit else None
    return f"{commit}+" if changed else commit or None


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(_CHECKOUT), *arguments]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _processor() -> str:
    """The model: last digits and seconds depend on it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
