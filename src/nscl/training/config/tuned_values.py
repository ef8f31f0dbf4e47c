"""Tuned strengths that come with the package: one small file per benchmark, no torch.

``tuned/<benchmark>.json`` maps preset → method → ``{"settings": ..., "trials": ...}``; the trials
name the record of everything that was tried. Benchmarks without a file use the methods' defaults.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from nscl.data.catalogue import has_texts, is_own
from nscl.errors import NsclError
from nscl.results import slug, write_json

FOLDER = Path(__file__).parent / "tuned"
ADOPTED = ("cpu-1", "cpu-2", "quick")  # the others are as printed and as published


def tuned_settings(benchmark: str, preset: str, method: str) -> dict[str, Any]:
    """The adopted settings of a method, or none."""
    if preset not in ADOPTED:
        return {}
    entry = _read(FOLDER / f"{slug(benchmark)}.json").get(preset, {}).get(method, {})
    return dict(entry.get("settings", {}))


def adopt(
    benchmark: str, preset: str, method: str, *, settings: dict[str, Any], trials: str
) -> Path:
    """Make a choice the preset's own; the file is replaced in one rename."""
    check_adoptable(benchmark, preset)
    path = FOLDER / f"{slug(benchmark)}.json"
    presets = {name: dict(methods) for name, methods in _read(path).items()}
    methods = presets.setdefault(preset, {})
    methods[method] = {"settings": settings, "trials": trials}
    presets[preset] = dict(sorted(methods.items()))
    FOLDER.mkdir(exist_ok=True)
    write_json(path, presets)
    _read.cache_clear()
    return path


def check_adoptable(benchmark: str, preset: str) -> None:
    """Refuse, before anything is trained, what tuned values cannot be adopted for."""
    if preset == "cpu-1" and not has_texts(benchmark):
        raise NsclError("preset 'cpu-1' stays as it was measured; adopt for cpu, its new version")
    if preset not in ADOPTED:
        raise NsclError(
            f"preset {preset!r} is as published and takes no tuned values; adopt for cpu or quick"
        )
    if is_own(benchmark):
        raise NsclError(
            f"{benchmark} is your own: the package adopts nothing for it. Leave out --adopt; "
            "the record has the choice, for --config"
        )


@cache
def _read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text())
    except ValueError as problem:
        raise NsclError(f"{path} is not JSON ({problem}): reinstall nscl") from problem
    return found
