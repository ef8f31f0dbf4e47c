"""What the numbers were measured on, as far as it explains them; nothing that names a place."""

import os
from typing import Any

import torch

from nscl.results import fingerprint


def facts() -> dict[str, Any]:
    """Versions, processor, threads and how busy the machine is."""
    load = [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None
    return {
        **fingerprint(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load": load,
    }
