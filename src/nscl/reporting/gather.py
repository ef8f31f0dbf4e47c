"""Finding what a report is about: run folders, folders of them, and single result files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nscl.metrics import AccuracyMatrix, MetricError
from nscl.reporting.errors import NoFigureDataError, ReportError
from nscl.results import (
    ConfigFile,
    FormatError,
    Result,
    RunDirectory,
    Skipped,
    find_runs,
    read_metrics,
)
from nscl.results.records import spectra as spectra_file
from nscl.results.records.spectra import Spectra

DEEPEST = 4  # folders of folders: runs/cifar/seeds/<run> is found, a whole disk is not searched
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as a report sees it; unfinished ones have no ``result`` but the tasks so far."""

    name: str
    benchmark: str
    method: str
    seed: int
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    accuracy: AccuracyMatrix
    result: Result | None = None
    directory: RunDirectory | None = None
    epochs: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def finished(self) -> bool:
        """Whether it has its result."""
        return self.result is not None

    def spectra(self) -> Spectra:
        """Read the eigenvalues, or say why there are none; large, so never kept."""
        if self.directory is None:
            raise NoFigureDataError(f"{self.name} is a result file without its run's folder")
        if not self.directory.spectra_path.exists():
            raise NoFigureDataError(f"{self.name} has no spectra.npz: its method writes none")
        try:
            return spectra_file.read(self.directory.spectra_path)
        except FormatError as problem:
            raise NoFigureDataError(str(problem)) from problem


@dataclass(frozen=True)
class FoundRuns:
    """The runs meant by some paths, each once, and what was passed over and why."""

    runs: tuple[Run, ...]
    skipped: tuple[Skipped, ...]


def gather(paths: Iterable[str | Path]) -> FoundRuns:
    """Read all runs under ``paths``; a path that does not exist is an error, a bad run is skipped.

    >>> gather(["nowhere"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    nscl.reporting.errors.ReportError: nowhere does not exist: ...
    """
    runs: dict[str, Run] = {}
    skipped: list[Skipped] = []
    for path in paths:
        for place, reason in _look(Path(path), depth=0):
            if reason:
                skipped.append(Skipped(place, reason))
                continue
            try:
                _add(_read(place), place, runs, skipped)
            except (FormatError, MetricError) as problem:
                skipped.append(Skipped(place, str(problem)))
    return FoundRuns(tuple(runs.values()), tuple(skipped))


def _look(path: Path, *, depth: int) -> Iterator[tuple[Path, str]]:
    """Runs and result files under a path, and with a reason what is neither."""
    found = find_runs([path])
    for run in found.runs:
        yield run.path, ""
    for place, reason in found.skipped:
        if not place.exists():
            raise ReportError(
                f"{path} does not exist: give a run, a folder of runs or a result.json"
            )
        if place.is_dir() and not (place / "config.json").exists():
            if depth < DEEPEST and place != path and not (place / MANIFEST).exists():
                yield from _look(place, depth=depth + 1)
        elif place.suffix == ".json" or place.is_dir():
            yield place, reason if place.is_dir() else ""
        elif depth == 0 and place == path:
            yield place, reason


def _add(run: Run, place: Path, runs: dict[str, Run], skipped: list[Skipped]) -> None:
    """A run given twice, as a folder and as a copy of its result, counts once."""
    known = runs.get(run.name)
    if known is None or (run.finished and not known.finished):
        runs[run.name] = run
    elif known.directory is None or run.directory is None or known.directory.path != place:
        skipped.append(Skipped(place, f"the same run as another one given: {run.name}"))


def _read(place: Path) -> Run:
    if place.is_dir():
        return _read_folder(RunDirectory(place))
    return _finished(Result.read(place))


def _read_folder(directory: RunDirectory) -> Run:
    records: list[dict[str, Any]] = []
    if directory.metrics_path.exists():
        records = list(read_metrics(directory.metrics_path))
    epochs = tuple(r for r in records if r.get("kind") == "epoch")
    if directory.is_finished:
        return _finished(directory.result(), directory=directory, epochs=epochs)
    so_far = AccuracyMatrix(r["accuracies"] for r in records if r.get("kind") == "task")
    identity = directory.identity()
    return _run(identity, directory.name, so_far, directory=directory, epochs=epochs)


def _finished(result: Result, **more: Any) -> Run:
    return _run(result, result.directory, result.accuracy, result=result, **more)


def _run(known: ConfigFile | Result, name: str, accuracy: AccuracyMatrix, **more: Any) -> Run:
    """A run from either of the records that have its configuration."""
    return Run(
        name=name,
        benchmark=known.benchmark,
        method=known.method,
        seed=known.seed,
        config=known.config,
        environment=known.environment,
        accuracy=accuracy,
        **more,
    )
