"""How runs are spoken of where room is short: names that fit and stay apart, and counts."""

from collections.abc import Sequence


def counted(count: int) -> str:
    """So many runs.

    >>> counted(1), counted(2)
    ('1 run', '2 runs')
    """
    return f"{count} run" if count == 1 else f"{count} runs"


def shortened(text: str, width: int, *, end: int | None = None) -> str:
    """A name that fits, without its middle: its ``end`` often tells it from others.

    >>> shortened("package.methods:Mine seed 3", 20), shortened("gem seed 3", 20)
    ('package.me…ne seed 3', 'gem seed 3')
    """
    tail = (width - 1) // 2 if end is None else end
    return text if len(text) <= width else f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def apart(names: Sequence[str], width: int) -> list[str]:
    """Names that fit, cut where none looks like another; numbered where every cut hides too much.

    >>> apart(["displacement, Ridge 30, norms free", "displacement, Ridge 9, norms free"], 20)
    ['displa…0, norms free', 'displa…9, norms free']
    >>> apart(["freely a and so on", "freely b and so on"], 8)
    ['free… #1', 'free… #2']
    """
    width = max(1, width)
    for end in sorted(range(width), key=lambda end: abs(2 * end - width + 1)):
        shown = [shortened(name, width, end=end) for name in names]
        if len(set(shown)) == len(set(names)):
            return shown
    numbers = [f" #{number}" for number, _ in enumerate(names, start=1)]
    room = max(1, width - len(numbers[-1]))
    return [
        shortened(name, room, end=0) + number for name, number in zip(names, numbers, strict=True)
    ]
