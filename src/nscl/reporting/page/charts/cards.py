"""All cards of a section in the order of the page, and its legend."""

from collections.abc import Sequence
from typing import Any

from altair.utils.schemapi import debug_mode

from nscl.reporting.page.charts.curves import acc_card, sweep_cards, task_card, time_card
from nscl.reporting.page.charts.losses import loss_card, training_card
from nscl.reporting.page.charts.maps import matrix_card
from nscl.reporting.page.charts.plane import plane_card
from nscl.reporting.page.charts.spectrum import layer_cards, spectrum_card
from nscl.reporting.page.charts.theme import SHAPES, Card, dash_pixels, styles_of
from nscl.reporting.plot_data.selection import standing_out
from nscl.reporting.plot_styles import first_styles
from nscl.reporting.series import Section

_NARROW = (
    acc_card, plane_card, task_card, training_card, time_card, sweep_cards, loss_card,
)  # fmt: skip
_WIDE = (matrix_card, layer_cards, spectrum_card)


def cards(section: Section) -> list[Card]:
    """The charts of a section that there are data for."""
    with debug_mode(False):  # no validation at each step: it takes a third of the time
        return _cards(section)


def _cards(section: Section) -> list[Card]:
    narrow = [card for make in _NARROW for card in make(section)]
    if len(narrow) % 2:  # no hole beside the last one
        last = narrow[-1]
        narrow[-1] = Card(last.key, last.title, last.spec, wide=True)
    return [*narrow, *(card for make in _WIDE for card in make(section))]


def legend(section: Section, named: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Label and swatch of each series, and whether its curve is shown from the beginning."""
    found = styles_of(section)
    first = standing_out(section, named)
    return [
        {"label": label, **_swatch(style), "open": hollow, "first": shown}
        for label, style, hollow, shown in zip(
            found.labels, found.styles, found.open, first, strict=True
        )
    ]


def key_of(card: Card) -> list[dict[str, Any]]:
    """What the lines of a sweep mean, where the section's legend does not say it."""
    labels = card.spec.get("usermeta", {}).get("key", [])
    swatches = first_swatches(len(labels))
    return [{"label": label, **look} for label, look in zip(labels, swatches, strict=True)]


def first_swatches(count: int) -> list[dict[str, Any]]:
    """Swatches of lines that are not series of a section."""
    return [{**_swatch(style), "open": False} for style in first_styles(count)]


def _swatch(style: Any) -> dict[str, Any]:
    dash = " ".join(map(str, dash_pixels(style)))
    return {"colour": f"var(--c{style.colour})", "shape": SHAPES[style.marker], "dash": dash}
