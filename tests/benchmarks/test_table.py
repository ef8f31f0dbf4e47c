"""The table shows what a figure promises, and small ratios as more than nothing."""

from benchmarks.figure import Figure, at_most
from benchmarks.table import as_table
from rich.console import Console


def shown(figure: Figure) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(as_table([figure]))
    return capture.get()


def test_a_promise_is_shown_with_its_note() -> None:
    text = shown(Figure("recall", "recall ÷ a pass", 21.0, 20.0, "ms", at_most(1.05), "medians 1"))
    assert all(
        expected in text for expected in ("recall ÷ a pass", "medians 1", "1.05", "≤ 1.05", "yes")
    )


def test_a_share_of_little_is_not_nothing() -> None:
    text = shown(Figure("decomposition-task", "", 45.0, 10_000.0, "s"))
    assert "0.0045" in text
    assert "yes" not in text
