"""Numbers in the cells of heat maps."""

from nscl.reporting.plot_data.cells import cell_text, clipped


def test_halves_are_rounded_up() -> None:
    texts = [cell_text(value, 0) for value in (0.5, 1.5, 62.5, 63.5, 62.499)]
    assert texts == ["1", "2", "63", "64", "62"]
    assert [cell_text(value, 2) for value in (0.125, 0.375, 0.1249, 1.0, 0.0)] == [
        "0.13", "0.38", "0.12", "1.00", "0.00"
    ]  # fmt: skip


def test_one_failed_run_of_six_is_left_out_of_the_scale() -> None:
    others = [50.0 + i % 15 for i in range(100)]
    span = clipped([*others, *[10.0] * 20])
    assert 30 < span.low <= 50
    assert span.ends == (f"≤ {span.low:.0f}", "64")


def test_values_without_outliers_have_the_whole_scale() -> None:
    assert clipped([40.0, 50.0, 60.0, 70.0]).ends == ("40", "70")
    assert clipped([61.2]).ends == ("61", "62")


def test_a_twentieth_at_either_end_may_be_beyond() -> None:
    span = clipped([float(value) for value in [0, *range(45, 56), *range(45, 56), 100] * 4])
    assert (span.below, span.above) == (True, True)
    assert span.low > 25
    assert span.high < 75
