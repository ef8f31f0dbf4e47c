"""Which colour, marker and dash a series has, the same in every figure and on the page.

Slots are numbers, so that paper figures and the page can each give them their own ink. The two
bounds are neutral: fine-tuning grey, joint training black; all other series share six colours.
"""

from typing import NamedTuple

from nscl.reporting.series import Section

COLOURS, MARKERS, DASHES = 6, 9, 5
GREY, BLACK = 6, 7
_BOUNDS = {"finetune": GREY, "joint": BLACK}


class Look(NamedTuple):
    """Slots of one series."""

    colour: int
    marker: int
    dash: int


def looks(section: Section) -> list[Look]:
    """The looks of all shown series of a section, in order."""
    found: list[Look] = []
    others = 0
    for series in section.shown:
        bound = _BOUNDS.get(series.method)
        if bound is not None and not any(look.colour == bound for look in found):
            found.append(Look(bound, MARKERS + bound - GREY, 1 if bound == GREY else 0))
        else:
            found.append(_look(others))
            others += 1
    return found


def some(count: int) -> list[Look]:
    """So many looks, for lines that are no series of a section."""
    return [_look(i) for i in range(count)]


def _look(i: int) -> Look:
    """Colour and marker alone tell 54 series apart; both come around after 18, so one is moved."""
    return Look(i % COLOURS, (i + i // 18) % MARKERS, i % DASHES)
