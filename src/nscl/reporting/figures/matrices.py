"""Heat maps: the accuracy matrix of each series; R and free directions per layer and task."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.plans import MOST_MATRICES
from nscl.reporting.figures.style import canvas, columns_for, panel_room, panels
from nscl.reporting.figures.texts import fitted, plain
from nscl.reporting.plot_data.cells import LIGHT, cell_text, decades, spread
from nscl.reporting.plot_data.curves import mean_matrix
from nscl.reporting.plot_data.spectral import (
    Array,
    layer_names,
    short_names,
    spectra,
    spectral_table,
)
from nscl.reporting.series import Section, Series

MAP = "cividis"  # the same to colour-blind eyes, and rises evenly in grey
ROOM_FOR_LAYERS = 8.0  # inches of a page; up to 61 layers have rows that their names fit into
MOST_NUMBERS, MOST_WIDE_NUMBERS = 7, 12  # tasks up to which the cells have room for numbers


def accuracy_matrix(section: Section, page: int = 0) -> Figure:
    """A lower triangle per series, all on one scale, on as many pages as they need."""
    if not section.shown:
        raise NoFigureDataError("no task is finished")
    everything = [mean_matrix(series) for series in section.shown]
    size = max(map(len, everything))  # of all: cells of one size, tasks at one place
    part = slice(page * MOST_MATRICES, (page + 1) * MOST_MATRICES)
    shown = section.shown[part]
    scale = Normalize(*spread(v for rows in everything for row in rows for v in row))
    columns = columns_for(len(shown))
    height = {1: 2.9, 2: 2.9, 3: 2.15}.get(columns, 1.8)
    figure, axes = panels(len(shown), columns=columns, height=height)
    for ax, series, rows in zip(axes, shown, everything[part], strict=True):
        _triangle(ax, rows, size, scale)
        ax.set_title(fitted(series.marked, panel_room(columns, beside=0.6)), loc="left")
    for i, ax in enumerate(axes):
        ax.set_xlabel("accuracy on task" if i + columns >= len(axes) else "")
        ax.set_ylabel("after task" if i % columns == 0 else "")
    bar = figure.colorbar(axes[0].images[0], ax=axes, shrink=0.8, aspect=30, pad=0.02)
    bar.set_label("accuracy (%)")
    bar.outline.set_visible(False)
    return figure


def _triangle(ax: Axes, rows: list[list[float]], size: int, scale: Normalize) -> None:
    grid = np.full((size, size), np.nan)
    for i, row in enumerate(rows):
        grid[i, : len(row)] = row
    image = _image(ax, grid, scale)
    if size <= MOST_NUMBERS:
        _numbers(ax, image, grid, digits=0)
    _task_ticks(ax, size)


def layer_map(series: Series, what: str) -> Figure:
    """``share`` (R) or ``free`` per layer and task of one series."""
    _, tasks = spectra(series)
    names = short_names(layer_names(tasks))
    values = np.array(
        [[np.nan if v is None else v for v in row] for row in spectral_table(tasks, what)]
    )
    label = "R: energy in\nfreed directions" if what == "share" else "free directions\n(share)"
    width = max(3.4, 1.9 + 0.42 * min(len(tasks), 12))
    figure = canvas(width, 1.3 + max(0.13 * len(names), min(0.26 * len(names), ROOM_FOR_LAYERS)))
    ax = figure.add_subplot()
    norm = (
        LogNorm(*decades(values[np.isfinite(values)].tolist()), clip=True)
        if what == "share"
        else Normalize(0.0, 1.0)
    )
    image = _image(ax, values, norm, square=False)
    if len(tasks) <= MOST_WIDE_NUMBERS:
        _numbers(ax, image, values, digits=2)
    ax.set_yticks(range(len(names)), [plain(name) for name in names])
    step = -(-len(tasks) // 12)
    ax.set_xticks(range(0, len(tasks), step), [str(t + 1) for t in [*tasks][::step]])
    ax.set_xlabel("after task")
    figure.suptitle(fitted(series.marked, width - 0.2), x=0.02, ha="left", fontsize=8)
    bar = figure.colorbar(image, ax=ax, aspect=12 + len(names), pad=0.02)
    bar.minorticks_off()
    bar.set_label(label)
    bar.outline.set_visible(False)
    return figure


def _image(ax: Axes, grid: Array, norm: Normalize, *, square: bool = True) -> AxesImage:
    aspect: Literal["equal", "auto"] = "equal" if square else "auto"
    # A share of zero has no logarithm; it has the colour of the least.
    coloured = np.maximum(grid, norm.vmin or 0.0)
    image = ax.imshow(coloured, cmap=MAP, norm=norm, aspect=aspect, interpolation="nearest")
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    return image


def _numbers(ax: Axes, image: AxesImage, grid: Array, *, digits: int) -> None:
    least = image.get_clim()[0] or 0.0
    for (i, j), value in np.ndenumerate(grid):
        if np.isfinite(value):
            ax.text(
                j, i, cell_text(float(value), digits), ha="center", va="center", fontsize=7,
                color=_contrast(image, max(float(value), least)),
            )  # fmt: skip


def _contrast(image: AxesImage, value: float) -> str:
    """Black or white, whichever is easier to read on the cell."""
    share: Any = image.norm(np.array(value))
    return "black" if share > LIGHT else "white"


def _task_ticks(ax: Axes, size: int) -> None:
    places: Sequence[int] = range(0, size, -(-size // 7))
    ax.set_xticks(places, [str(i + 1) for i in places])
    ax.set_yticks(places, [str(i + 1) for i in places])
