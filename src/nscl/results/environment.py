"""What a run ran on, as far as it explains its numbers: versions and the kind of machine.

Nothing that names a person or a place: results are made to be shared.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nscl._version import __version__


def fingerprint() -> dict[str, str | int | None]:
    """Versions and kind of machine; None where a package is not installed. Imports none of them.

    >>> sorted(fingerprint())
    ['cpus', 'nscl', 'numpy', 'platform', 'processor', 'python', 'torch']
    """
    return {
        "nscl": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
    }


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
