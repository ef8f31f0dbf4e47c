"""Notes of results that a reader needs beside the numbers, and the rows they belong to."""

from collections.abc import Iterable

from nscl.results.records.result import Result

AT_CHANCE = "no better than chance once learned"  # how a remark on tasks not learned begins


def has_unlearned_tasks(result: Result) -> bool:
    """Whether a task was not learned: what was never known cannot be forgotten."""
    return any(remark.startswith(AT_CHANCE) for remark in result.remarks)


def remarks(results: Iterable[Result]) -> tuple[str, ...]:
    """Every note and remark once: which further images were used, which task was not learned."""
    return tuple(dict.fromkeys(text for result in results for text in _texts(result)))


def _texts(result: Result) -> list[str]:
    return [*(f"{name} {value}" for name, value in result.notes.items()), *result.remarks]


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
