"""Every figure of a section that there are data for, drawn one at a time."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from matplotlib.figure import Figure

from nscl.reporting import views
from nscl.reporting.errors import MissingDataError
from nscl.reporting.figures.curves import acc_after_task, acc_bwt, step_time, task_accuracy
from nscl.reporting.figures.matrices import accuracy_matrix, layer_map, matrix_pages
from nscl.reporting.figures.spectrum import singular_values
from nscl.reporting.figures.style import laid_out, styled
from nscl.reporting.figures.trials import old_losses, sweep
from nscl.reporting.missing import LeftOut, left_out, spectra_of, with_spectra
from nscl.reporting.series import Section, Series
from nscl.results import slug

MOST_SPECTRA = 6  # series of a section of which spectra are drawn

Plan = tuple[str, Callable[[], Figure]]
_OF_A_SECTION: dict[str, Callable[[Section], Figure]] = {
    "acc-after-task": acc_after_task,
    "task-accuracy": task_accuracy,
    "acc-bwt": acc_bwt,
    "step-time": step_time,
    "old-losses": old_losses,
}


def draw(section: Section) -> Iterator[tuple[str, Figure] | LeftOut]:
    """Draw all figures of a section, or tell why not; call and save within ``styled``."""
    told = left_out(section)
    yield from told
    missing = {each.name for each in told}
    for name, make in plans(section, missing):
        try:
            yield name, laid_out(make())
        except MissingDataError as problem:
            yield LeftOut(name, str(problem))
    yield from _not_drawn(section, missing)


def plans(section: Section, missing: set[str]) -> Iterator[Plan]:
    """Names of all figures that are not ``missing``, and how each is drawn."""
    for page in range(matrix_pages(section) if "accuracy-matrix" not in missing else 0):
        tail = f"-{page + 1}" if page else ""
        yield f"accuracy-matrix{tail}", partial(accuracy_matrix, section, page)
    for name, make in _OF_A_SECTION.items():
        if name not in missing:
            yield name, partial(make, section)
    if "sweep" not in missing:
        for found in views.together(views.sweeps(section)):
            name = f"sweep-{slug(found[0].method)}-{slug(found[0].option)}"
            yield name, partial(sweep, found)
    for i, series in enumerate(_first_of_each(_readable(section, missing))):
        # Long labels are cut, and two of them may be alike then.
        tail = f"{i + 1}-{slug(series.label)}"
        yield f"singular-values-{tail}", partial(singular_values, series)
        yield f"residual-energy-{tail}", partial(layer_map, series, "share")
        yield f"free-directions-{tail}", partial(layer_map, series, "free")


def _not_drawn(section: Section, missing: set[str]) -> Iterator[LeftOut]:
    rest = len(_readable(section, missing)) - MOST_SPECTRA
    if rest > 0:
        reason = f"spectra of {MOST_SPECTRA} series are drawn; those of all are on the page"
        yield LeftOut(f"singular-values of {rest} more series", reason)


def _readable(section: Section, missing: set[str]) -> list[Series]:
    return [series for series in with_spectra(section) if spectra_of(series) not in missing]


def _first_of_each(found: list[Series]) -> list[Series]:
    """The series of which spectra are drawn: the first of every method before any second one."""
    seen = Counter[str]()
    turns = []
    for place, series in enumerate(found):
        turns.append((seen[series.method], place))
        seen[series.method] += 1
    return [found[place] for place in sorted(place for _, place in sorted(turns)[:MOST_SPECTRA])]


__all__ = ["draw", "plans", "styled"]
