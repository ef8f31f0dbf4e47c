"""The paper's singular-value curves: what each layer's inputs use, and the part that was freed."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from nscl.reporting.figures.style import panels
from nscl.reporting.figures.texts import fitted, plain
from nscl.reporting.plot_data.spectral import (
    FREE,
    LayerSpectrum,
    evenly,
    layer_names,
    short_names,
    spectra,
)
from nscl.reporting.plot_styles import FREED, HELD
from nscl.reporting.series import Series

MOST_LAYERS, MOST_TASKS = 6, 3
FLOOR = 1e-10  # relative; smaller values are rounding errors, and zero has no logarithm


def singular_values(series: Series) -> Figure:
    """A row per layer, a column per task (first, middle, last), R in every panel."""
    _, tasks = spectra(series)
    names = layer_names(tasks)
    shown = short_names(names)
    layers = evenly(len(names), MOST_LAYERS)
    columns = [[*tasks][i] for i in evenly(len(tasks), MOST_TASKS)]
    figure, axes = panels(len(layers) * len(columns), columns=len(columns), height=1.5)
    for place, ax in enumerate(axes):
        layer, task = layers[place // len(columns)], columns[place % len(columns)]
        spectrum = tasks[task].get(names[layer])
        if spectrum is None:
            ax.set_axis_off()
            continue
        _panel(ax, spectrum, plain(shown[layer]), task + 1)
        if place % len(columns) == 0:
            ax.set_ylabel("singular value")
        if place >= len(axes) - len(columns):
            ax.set_xlabel("index")
    title = f"{series.marked}: singular values of the inputs' covariance"
    figure.suptitle(fitted(title, figure.get_figwidth() - 0.4), fontsize=8)
    figure.legend(handles=_handles(), loc="outside lower center", ncols=2)
    return figure


def _panel(ax: Axes, spectrum: LayerSpectrum, layer: str, task: int) -> None:
    top = float(spectrum.values.max()) or 1.0
    values = np.maximum(spectrum.values, top * FLOOR)
    x = np.arange(1, len(values) + 1)
    free = spectrum.weights > FREE
    ax.plot(x, values, color=HELD, linewidth=1.4)
    ax.plot(x, np.where(free, values, np.nan), color=FREED, linewidth=2.0)
    ax.fill_between(
        x, values, values.min() * 0.3, where=free.tolist(), step="mid", facecolor=FREED + "40",
        edgecolor=FREED, hatch="////", linewidth=0,
    )  # fmt: skip
    ax.set_yscale("log")
    ax.yaxis.set_minor_locator(NullLocator())  # they take two fifths of the drawing time
    ax.set_ylim(values.min() * 0.3, top * 4)
    ax.set_title(f"{layer}\nafter task {task}: R = {spectrum.share:.2g}", loc="left", fontsize=7.5)
    ax.text(
        0.03, 0.05, f"{spectrum.free:.0f} of {len(values)} free", transform=ax.transAxes,
        fontsize=7.5, bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.2},
    )  # fmt: skip


def _handles() -> list[Line2D | Patch]:
    return [
        Line2D([], [], color=HELD, linewidth=1.4, label="held"),
        Patch(facecolor=FREED + "40", edgecolor=FREED, hatch="////", label="freed (null space)"),
    ]
