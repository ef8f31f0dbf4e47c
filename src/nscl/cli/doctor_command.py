"""``nscl doctor``: what this machine has, and what follows."""

import importlib.metadata
import os

from rich.console import Console
from rich.table import Table

OPTIONAL = ("ray", "tensorboard", "wandb", "datasets", "transformers", "peft")
NEEDED = ("torch", "safetensors", "numpy", "cyclopts", "pydantic", "rich", "scipy",
          "scikit-learn", "pillow", "matplotlib", "jinja2")  # fmt: skip


def doctor() -> int:
    """Say what this machine has: torch, devices, data found, optional packages."""
    import torch

    from nscl.data import list_benchmarks
    from nscl.data.fetch import check

    table = Table(box=None, pad_edge=False, show_header=False)
    for name in NEEDED:
        table.add_row(name, _version(name) or r"[red]missing[/]: pip install 'nscl\[lab]'")
    table.add_row("devices", ", ".join(_devices()))
    table.add_row("threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores")
    for entry in list_benchmarks():
        if not entry.name.startswith("folder:"):
            status = check(entry.name)
            hint = "" if status.ready else f"  (nscl data fetch {entry.name})"
            table.add_row(entry.name, f"{status.state}{hint}")
    for name in OPTIONAL:
        table.add_row(name, _version(name) or "not installed (optional)")
    Console(highlight=False).print(table)
    return 0


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
