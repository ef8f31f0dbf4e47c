"""What a reader must know beside the numbers: the notes of results, and whose they are."""

from collections.abc import Iterable

from nscl.results.result import Result


def remarks(results: Iterable[Result]) -> tuple[str, ...]:
    """Every note once: which further images were used, how many old ones are kept."""
    return tuple(dict.fromkeys(f"{k} {v}" for result in results for k, v in result.notes.items()))


def by_remark(noted: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """A line for every remark, with the rows it is about.

    >>> by_remark([("gd-wild", ("pool digits", "coreset 30")), ("muc-mas", ("pool digits",))])
    ['pool digits: gd-wild, muc-mas', 'coreset 30: gd-wild']
    """
    found: dict[str, list[str]] = {}
    for label, texts in noted:
        for text in texts:
            found.setdefault(text, []).append(label)
    return [f"{text}: {', '.join(labels)}" for text, labels in found.items()]
