"""Short texts about runs: counts, durations, and names that fit and stay distinct."""

from collections.abc import Sequence


def count_runs(count: int) -> str:
    """A number of runs.

    >>> count_runs(1), count_runs(2)
    ('1 run', '2 runs')
    """
    return f"{count} run" if count == 1 else f"{count} runs"


def shorten(text: str, width: int, *, end: int | None = None) -> str:
    """A name without its middle, to fit ``width``; ``end`` characters of its end are kept.

    >>> shorten("package.methods:Mine seed 3", 20), shorten("gem seed 3", 20)
    ('package.me…ne seed 3', 'gem seed 3')
    """
    tail = (width - 1) // 2 if end is None else end
    return text if len(text) <= width else f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def shorten_distinct(names: Sequence[str], width: int) -> list[str]:
    """Names that fit ``width`` and stay distinct; numbered where no cut keeps them distinct.

    >>> shorten_distinct(["drift, Ridge 30, norms free", "drift, Ridge 9, norms free"], 20)
    ['drift,…0, norms free', 'drift,…9, norms free']
    >>> shorten_distinct(["freely a and so on", "freely b and so on"], 8)
    ['free… #1', 'free… #2']
    """
    width = max(1, width)
    for end in sorted(range(width), key=lambda end: abs(2 * end - width + 1)):
        shown = [shorten(name, width, end=end) for name in names]
        if len(set(shown)) == len(set(names)):
            return shown
    numbers = [f" #{number}" for number, _ in enumerate(names, start=1)]
    left = max(1, width - len(numbers[-1]))
    return [
        shorten(name, left, end=0) + number for name, number in zip(names, numbers, strict=True)
    ]


def format_seconds(seconds: float | None) -> str:
    """A duration in the unit that people would use.

    >>> format_seconds(42), format_seconds(600), format_seconds(9000), format_seconds(None)
    ('42 s', '10 min', '2.5 h', '')
    """
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
