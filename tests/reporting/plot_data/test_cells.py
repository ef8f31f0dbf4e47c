"""Numbers in the cells of heat maps."""

from nscl.reporting.plot_data.cells import cell_text


def test_halves_are_rounded_up() -> None:
    texts = [cell_text(value, 0) for value in (0.5, 1.5, 62.5, 63.5, 62.499)]
    assert texts == ["1", "2", "63", "64", "62"]
    assert [cell_text(value, 2) for value in (0.125, 0.375, 0.1249, 1.0, 0.0)] == [
        "0.13", "0.38", "0.12", "1.00", "0.00"
    ]  # fmt: skip
