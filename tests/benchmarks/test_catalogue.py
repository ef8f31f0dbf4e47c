"""Every promise is a figure."""

from benchmarks.catalogue import catalogue


def test_all_figures_are_found() -> None:
    entries = catalogue()
    assert {
        "step", "step-25", "covariance", "decomposition-2304", "decomposition-4608", "resident",
        "peak", "resident-offload", "step-offload",
    } <= entries.keys()  # fmt: skip
    assert [name for name, entry in entries.items() if entry.full] == ["decomposition-4608"]
