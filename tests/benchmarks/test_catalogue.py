"""Every promise is a figure."""

from benchmarks.catalogue import catalogue, chosen

NAMES = [
    "step", "step-dense", "step-25", "step-25-dense", "step-offload",
    "step-default", "step-recall", "step-displacement",
    "covariance", "remember-pass",
    "remember-factors", "resident-factors",
    "decomposition-2304", "decomposition-4608", "decomposition-task",
    "resident", "resident-offload", "peak",
    "wide-bytes", "wide-remember-4096", "wide-remember",
    "recall",
    "loop", "checkpoint",
]  # fmt: skip


def test_all_figures_are_found_in_the_order_of_the_table() -> None:
    assert list(catalogue()) == NAMES


def test_two_figures_take_minutes() -> None:
    full = [name for name, entry in catalogue().items() if entry.full]
    assert full == ["decomposition-4608", "wide-remember"]
    assert "decomposition-4608" not in chosen([], full=False)


def test_what_is_asked_for_keeps_that_order() -> None:
    assert list(chosen(["recall", "step"], full=False)) == ["step", "recall"]
