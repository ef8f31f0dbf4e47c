"""Which series stand out where there are too many curves: the best, the worst, and those named."""

from collections.abc import Iterable, Sequence

from nscl.reporting.errors import ReportError
from nscl.reporting.plot_data.curves import acc_curve
from nscl.reporting.series import Section, Series
from nscl.reporting.tables.rows import BOUNDS

FEW = 8  # curves that can be told apart in one chart


def standing_out(section: Section, named: Sequence[str] = ()) -> list[bool]:
    """For each shown series, whether its curve stands out: all of them where there are few.

    Of more than eight, the best and the worst do, of methods that keep old data and of those that
    do not, and the ``named``: labels or methods.
    """
    if len(section.shown) <= FEW:
        return [True] * len(section.shown)
    ends = [series for group in _groups(section) for series in (group[0], group[-1])]
    return [
        any(series is end for end in ends) or not {series.label, series.method}.isdisjoint(named)
        for series in section.shown
    ]


def check_names(named: Iterable[str], sections: Iterable[Section]) -> None:
    """A name that no series has is an error that lists those there are."""
    series = [each for section in sections for each in section.series]
    known = dict.fromkeys([*(s.label for s in series), *(s.method for s in series)])
    for name in named:
        if name not in known:
            raise ReportError(
                f"no row or method is called {name!r}: choose from {', '.join(known)}"
            )


def _groups(section: Section) -> list[list[Series]]:
    """Series with and without old data, each from the highest ACC; bounds are no competitors."""
    ranked = sorted(_compared(section), key=lambda series: -acc_curve(series)[-1].mean)
    groups = [[s for s in ranked if (s.stores == "data") == keeps] for keeps in (False, True)]
    return [group for group in groups if group]


def _compared(section: Section) -> list[Series]:
    """Series that have come as far as any."""
    return [s for s in section.shown if s.method not in BOUNDS and s.tasks == section.tasks]
