"""Finding runs: a run, a folder of runs, or a pattern that matches either."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from nscl.results.errors import FormatError
from nscl.results.run_directory import RunDirectory


class Skipped(NamedTuple):
    """A path that is not a run, and why."""

    path: Path
    reason: str


class Found(NamedTuple):
    """Runs in the order of the given paths, by name within a folder; and skipped paths."""

    runs: list[RunDirectory]
    skipped: list[Skipped]


def find_runs(paths: Iterable[str | Path]) -> Found:
    """Find the runs meant by ``paths``, finished or not, each once.

    A path is the folder of a run, a folder that holds runs, or a pattern such as ``runs/*-ewc-*``.
    A path that is not a run is listed in ``skipped``; hidden entries are ignored.
    """
    found = Found([], [])
    seen: set[Path] = set()
    for path in paths:
        for candidate in _candidates(Path(path)):
            place = candidate.resolve()
            if place not in seen:
                seen.add(place)
                _sort_in(candidate, found)
    return found


def _candidates(path: Path) -> Iterator[Path]:
    if path.exists():
        yield from _unfold(path)
        return
    matches = _matches(path)
    if not matches:
        yield path
    for match in matches:
        yield from _unfold(match)


def _matches(pattern: Path) -> list[Path]:
    try:
        return sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))
    except ValueError:
        # Not a pattern either, such as ``a**b``: reported as a path that does not exist.
        return []


def _unfold(path: Path) -> Iterator[Path]:
    """Turn a folder into its entries, unless it is a run, or empty: then it is reported."""
    if not path.is_dir() or (path / "config.json").exists():
        yield path
        return
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    yield from entries or [path]


def _sort_in(candidate: Path, found: Found) -> None:
    run = RunDirectory(candidate)
    reason = _why_not(run)
    if reason:
        found.skipped.append(Skipped(candidate, reason))
    else:
        found.runs.append(run)


def _why_not(run: RunDirectory) -> str:
    if not run.path.exists():
        return "does not exist"
    if not run.path.is_dir():
        return "is a file, not the folder of a run"
    if not run.config_path.exists():
        return "has no config.json"
    try:
        run.identity()
    except FormatError as error:
        return str(error)
    return ""
