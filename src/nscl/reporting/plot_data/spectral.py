"""Spectra of layers: which directions are free, and R, the energy of old data in them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.gather import Run
from nscl.reporting.series import Series

Array = NDArray[np.float64]
FREE = 0.5  # a soft weight above this counts as freed where a picture must choose
ROUNDING = 1e-12  # shares and weights below are what rounding leaves of zero


@dataclass(frozen=True)
class LayerSpectrum:
    """A layer after a task: values descending, their weights (1 free, 0 held), R and free share."""

    values: Array
    weights: Array

    @property
    def share(self) -> float:
        """The paper's R: energy of old inputs in the freed directions, relative to all of it."""
        total = float(self.values.sum())
        share = float((self.weights * self.values).sum()) / total if total > 0 else 0.0
        return share if share > ROUNDING else 0.0

    @property
    def free(self) -> float:
        """Number of free directions; soft weights count as the part that they free."""
        free = float(self.weights.sum())
        return free if free > ROUNDING else 0.0


LayerSpectra = dict[str, LayerSpectrum]


def spectra(series: Series) -> tuple[Run, dict[int, LayerSpectra]]:
    """The spectra of the first shown run that has any, tasks in order."""
    problems = []
    for run in series.shown:
        try:
            return run, _checked(run)
        except NoFigureDataError as problem:
            problems.append(str(problem))
    raise NoFigureDataError(problems[0] if problems else f"{series.label}: no run to show")


def _checked(run: Run) -> dict[int, LayerSpectra]:
    """All spectra of a run, or what is wrong with its file."""
    found: dict[int, LayerSpectra] = {}
    for task, layers in run.spectra().items():
        for name, pair in layers.items():
            values, weights = pair["eigenvalues"], pair["weights"]
            alike = values.size and values.shape == weights.shape
            if not alike or not np.isfinite([values, weights]).all():
                raise NoFigureDataError(
                    f"{run.name}: the spectrum of {name} after task {task + 1} is damaged: "
                    "its eigenvalues and weights are not as many finite numbers"
                )
            found.setdefault(task, {})[name] = _spectrum(values, weights)
    if not found:
        raise NoFigureDataError(f"{run.name}: spectra.npz holds no layer")
    return found


def _spectrum(eigenvalues: ArrayLike, weights: ArrayLike) -> LayerSpectrum:
    values = np.clip(np.asarray(eigenvalues, dtype=np.float64).ravel(), 0.0, None)
    order = np.argsort(-values, kind="stable")
    return LayerSpectrum(values[order], np.asarray(weights, dtype=np.float64).ravel()[order])


def layer_names(tasks: dict[int, LayerSpectra]) -> list[str]:
    """All layers in the order of the file."""
    return list(dict.fromkeys(name for layers in tasks.values() for name in layers))


def spectral_table(tasks: dict[int, LayerSpectra], what: str) -> list[list[float | None]]:
    """``share`` or ``free`` (relative to the layer's size) per layer (rows) and task (columns)."""
    return [
        [_entry(layers.get(name), what) for layers in tasks.values()] for name in layer_names(tasks)
    ]


def _entry(spectrum: LayerSpectrum | None, what: str) -> float | None:
    if spectrum is None:
        return None
    return spectrum.share if what == "share" else spectrum.free / max(1, spectrum.values.size)


def evenly(count: int, most: int) -> list[int]:
    """Up to ``most`` of ``count`` indices, first and last among them.

    >>> evenly(10, 4), evenly(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def short_names(names: list[str]) -> list[str]:
    """Layer names without the beginning that all of them share.

    >>> short_names(["backbone.layers.0", "backbone.layers.1"])
    ['layers.0', 'layers.1']
    """
    parts = [name.split(".") for name in names]
    common = 0
    while all(_spare(p, common) for p in parts) and len({p[common] for p in parts}) == 1:
        common += 1
    return [".".join(p[common:]) for p in parts]


def _spare(parts: list[str], place: int) -> bool:
    """Whether a name still says something without this part: not just a number."""
    return len(parts) > place + 1 and not parts[place + 1].isdigit()
