"""What the page knows of each run, so that a reader can set any two of them side by side."""

from typing import Any

from nscl.reporting.gather import Run
from nscl.reporting.labels import differing
from nscl.reporting.plot_data.spectral import evenly
from nscl.reporting.plot_data.training import run_losses
from nscl.reporting.series import Section
from nscl.results import flat

MOST_EPOCHS = 200  # of a curve of losses: 50 runs must fit into 5 MB
DIGITS = 7  # significant digits of an accuracy


def pair_runs(section: Section) -> list[dict[str, Any]]:
    """The runs that have something to show, each with the settings in which the runs differ."""
    found = [(s.label, run) for s in section.series for run in s.runs if run.accuracy.tasks]
    settings = [flat(run.config) for _, run in found]
    names = differing(settings)
    return [
        {
            "name": run.name,
            "label": f"{label}, seed {run.seed}" + ("" if run.finished else " (unfinished)"),
            "settings": {name: _text(each.get(name)) for name in names},
            "matrix": [[float(f"{v or 0.0:.{DIGITS}g}") for v in row] for row in run.accuracy.rows],
            "losses": _losses(run),
        }
        for (label, run), each in zip(found, settings, strict=True)
    ]


def _text(value: Any) -> str:
    return "–" if value is None or value == {} else str(value)


def _losses(run: Run) -> list[list[float]]:
    """Pairs of place and loss; 2.5 is the middle of the third task."""
    points = [
        [round(task + (i + 1) / len(losses), 3), float(f"{loss:.3g}")]
        for task, losses in run_losses(run).items()
        if task < run.accuracy.tasks
        for i, loss in enumerate(losses)
        if loss > 0
    ]
    return [points[i] for i in evenly(len(points), MOST_EPOCHS)]
