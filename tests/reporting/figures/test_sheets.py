"""Sheets: what is stamped, drawn and coloured really stands where it was put, in inches."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize

from nscl.reporting.figures.sheets import Sheet, SheetFigure

DPI = 100


def pixels(figure: SheetFigure) -> np.ndarray:
    """Grey values, the first row at the bottom."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[::-1, :, :3].mean(-1)


@pytest.mark.parametrize(("align", "left", "right"), [("left", 1.0, 1.5), ("right", 0.5, 1.0)])
def test_a_stamp_stands_beside_or_before_its_place(align: str, left: float, right: float) -> None:
    sheet = Sheet(2.0, 1.0)
    sheet.stamp("888", 1.0, 0.4, size=12, align=align)  # type: ignore[arg-type]
    figure = sheet.finished()
    y, x = np.nonzero(pixels(figure) < 128)
    assert left * DPI - 1 <= x.min() <= x.max() <= right * DPI + 1
    assert (y.min() + y.max()) / 2 == pytest.approx(0.4 * DPI, abs=1.5)
    assert figure.stamps == [("888", (1.0, 0.4))]


def test_cells_have_the_colours_of_their_values_first_row_on_top() -> None:
    sheet = Sheet(2.0, 2.0)
    sheet.image(np.array([[0.0, 1.0], [1.0, 1.0]]), Normalize(0.0, 1.0), (0.5, 0.5, 1.0, 1.0))
    grey = pixels(sheet.finished())
    cells = [grey[int(y * DPI), int(x * DPI)] for y in (1.25, 0.75) for x in (0.75, 1.25)]
    assert cells[0] < 60 < 150 < min(cells[1:])
    assert cells[1] == cells[2] == cells[3]
    assert grey[10, 10] == 255  # white around them


def test_a_line_runs_between_its_points() -> None:
    sheet = Sheet(2.0, 1.0)
    sheet.lines([[(0.5, 0.5), (1.5, 0.5)]], colors="black", linewidths=2.0)
    y, x = np.nonzero(pixels(sheet.finished()) < 128)
    assert (x.min(), x.max()) == (pytest.approx(50, abs=3), pytest.approx(149, abs=3))
    assert set(y) <= {48, 49, 50, 51}
