"""Which figures a section cannot have, and why: shown on the page and at the command line."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.plot_data.curves import old_losses, step_times
from nscl.reporting.plot_data.spectral import spectra
from nscl.reporting.plot_data.sweeps import sweeps
from nscl.reporting.plot_data.training import training_losses
from nscl.reporting.series import Section, Series

T = TypeVar("T")
SPECTRAL = ("singular-values", "residual-energy", "free-directions")


@dataclass(frozen=True)
class LeftOut:
    """A figure that is not there, and why."""

    name: str
    reason: str


def left_out(section: Section) -> list[LeftOut]:
    """All figures without data."""
    return [LeftOut(name, reason) for name, reason in _reasons(section) if reason]


def _reasons(section: Section) -> Iterator[tuple[str, str]]:
    yield "accuracy-matrix", "" if section.shown else "no task is finished"
    few = f"it takes 2 finished tasks, there are {section.tasks}" if section.tasks < 2 else ""
    yield "acc-after-task", few
    yield "task-accuracy", few
    yield "acc-bwt", "" if any(s.finished for s in section.shown) else "no run is finished"
    yield "step-time", _unless_any(section.shown, step_times)
    yield "training-loss", _unless_any(section.shown, training_losses)
    yield "old-losses", _unless_any(section.shown, old_losses)
    yield "sweep", _unless_any([section], sweeps)
    having = with_spectra(section)
    none = "" if having else "no run has a spectra.npz; methods that project write one"
    for name in SPECTRAL:
        yield name, none
    for series in having:
        yield spectra_of(series), _unless_any([series], spectra)


def _unless_any(things: Iterable[T], view: Callable[[T], object]) -> str:
    reason = "no task is finished"
    for thing in things:
        try:
            view(thing)
        except NoFigureDataError as problem:
            reason = str(problem)
        else:
            return ""
    return reason


def spectra_of(series: Series) -> str:
    """What the pictures of a series' spectra are called, should its file be damaged."""
    return f"spectra of {series.label}"


def with_spectra(section: Section) -> list[Series]:
    """Series of which a shown run has a file of spectra."""
    return [
        series
        for series in section.shown
        if any(r.directory and r.directory.spectra_path.exists() for r in series.shown)
    ]
