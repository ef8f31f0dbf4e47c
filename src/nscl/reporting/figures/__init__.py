"""Every figure of a section that there are data for, drawn one at a time."""

from collections.abc import Callable, Iterator
from functools import partial

from matplotlib.figure import Figure

from nscl.reporting import views
from nscl.reporting.errors import MissingDataError
from nscl.reporting.figures.curves import acc_after_task, acc_bwt, step_time, task_accuracy
from nscl.reporting.figures.matrices import accuracy_matrix, layer_map
from nscl.reporting.figures.spectrum import singular_values
from nscl.reporting.figures.style import laid_out, styled
from nscl.reporting.figures.trials import old_losses, sweep
from nscl.reporting.missing import LeftOut, left_out, with_spectra
from nscl.reporting.series import Section
from nscl.results import slug

MOST_SPECTRA = 6  # series of a section of which spectra are drawn

Plan = tuple[str, Callable[[], Figure]]
_OF_A_SECTION: dict[str, Callable[[Section], Figure]] = {
    "accuracy-matrix": accuracy_matrix,
    "acc-after-task": acc_after_task,
    "task-accuracy": task_accuracy,
    "acc-bwt": acc_bwt,
    "step-time": step_time,
    "old-losses": old_losses,
}


def draw(section: Section) -> Iterator[tuple[str, Figure] | LeftOut]:
    """Draw all figures of a section, or tell why not; call and save within ``styled``."""
    yield from left_out(section)
    missing = {told.name for told in left_out(section)}
    for name, make in _plans(section, missing):
        try:
            yield name, laid_out(make())
        except MissingDataError as problem:
            yield LeftOut(name, str(problem))
    for series in with_spectra(section)[MOST_SPECTRA:]:
        reason = f"only the spectra of the first {MOST_SPECTRA} series are drawn; the page has all"
        yield LeftOut(f"singular-values of {series.label}", reason)


def _plans(section: Section, missing: set[str]) -> Iterator[Plan]:
    for name, make in _OF_A_SECTION.items():
        if name not in missing:
            yield name, partial(make, section)
    if "sweep" not in missing:
        for found in views.sweeps(section):
            yield f"sweep-{slug(found.method)}-{slug(found.option)}", partial(sweep, found)
    for i, series in enumerate(with_spectra(section)[:MOST_SPECTRA]):
        # Long labels are cut, and two of them may be alike then.
        tail = f"{i + 1}-{slug(series.label)}"
        yield f"singular-values-{tail}", partial(singular_values, series)
        yield f"residual-energy-{tail}", partial(layer_map, series, "share")
        yield f"free-directions-{tail}", partial(layer_map, series, "free")


__all__ = ["draw", "styled"]
