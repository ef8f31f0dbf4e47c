"""Users' texts in a figure: dollar signs are literal, and no text is wider than its place."""

import textwrap
from functools import cache

from matplotlib.font_manager import findfont, get_font

FONT = "DejaVu Sans"
POINTS = 72.0  # per inch
NARROW = 0.35  # of the font's size: few texts have narrower letters


def plain(text: str) -> str:
    """The text with literal dollar signs: matplotlib would read them as formulas."""
    return text.replace("$", r"\$")


def fitted(text: str, room: float, *, size: float = 8.0, lines: int = 3) -> str:
    r"""The text in up to ``lines`` lines of ``room`` inches; what is left over becomes an ellipsis.

    >>> fitted("displacement, Ridge 100 (unfinished)", 1.2)
    'displacement, Ridge\n100 (unfinished)'
    """
    most = max(5, min(len(text), int(room * POINTS / (size * NARROW))))
    wrapped = [text]
    for characters in range(most, 4, -1):
        wrapped = _wrapped(text, characters, lines)
        if all(width(line, size) <= room for line in wrapped):
            break
    return plain("\n".join(wrapped))


def _wrapped(text: str, characters: int, lines: int) -> list[str]:
    found = textwrap.wrap(text, characters, break_on_hyphens=False)
    if len(found) <= lines:
        return found
    return [*found[: lines - 1], f"{' '.join(found[lines - 1 :])[: characters - 1].rstrip(' ,')}…"]


def width(line: str, size: float) -> float:
    """How many inches a line takes."""
    return sum(map(_advance, line)) * size / POINTS


@cache
def _advance(character: str) -> float:
    """The width of a character relative to the font's size."""
    font = get_font(findfont(FONT))
    if not font.get_char_index(ord(character)):
        return 1.0  # the font lacks the letter and draws a box
    font.set_size(100.0, POINTS)
    return float(font.load_char(ord(character)).linearHoriAdvance) / 65536 / 100
