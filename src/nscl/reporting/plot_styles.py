"""The colour, marker and dash of each series, the same in the paper figures and on the page.

A style is a tuple of indices. Paper figures and the page look them up in the same tables of
colours and dashes. The two bounds are neutral: fine-tuning is grey, joint training is black.
All other series share six colours.
"""

from typing import NamedTuple

from nscl.reporting.series import Section

# Six colours of Okabe and Ito, then grey and black for the two bounds.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#767676", "#000000")
# On and off, in multiples of the line's width.
DASHES: tuple[tuple[float, ...], ...] = (
    (), (5, 1.6), (1.2, 1.4), (5, 1.4, 1.2, 1.4), (8, 2)
)  # fmt: skip
FREED, HELD = COLOURS[0], COLOURS[6]  # directions of a spectrum
HUES, MARKERS = 6, 9  # without those of the bounds
GREY, BLACK = 6, 7
_BOUNDS = {"finetune": GREY, "joint": BLACK}


class PlotStyle(NamedTuple):
    """Indices of one series' colour, marker and dash."""

    colour: int
    marker: int
    dash: int


def section_styles(section: Section) -> list[PlotStyle]:
    """The styles of all shown series of a section, in order."""
    found: list[PlotStyle] = []
    others = 0
    for series in section.shown:
        bound = _BOUNDS.get(series.method)
        if bound is not None and not any(style.colour == bound for style in found):
            found.append(PlotStyle(bound, MARKERS + bound - GREY, 1 if bound == GREY else 0))
        else:
            found.append(_style(others))
            others += 1
    return found


def first_styles(count: int) -> list[PlotStyle]:
    """The first ``count`` styles, for lines that are not series of a section."""
    return [_style(i) for i in range(count)]


def _style(i: int) -> PlotStyle:
    """Colour and marker alone distinguish 54 series: both repeat after 18, so one is shifted."""
    return PlotStyle(i % HUES, (i + i // 18) % MARKERS, i % len(DASHES))
