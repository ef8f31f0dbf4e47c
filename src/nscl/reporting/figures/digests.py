"""A digest of all that a figure depends on: while it is the same, the figure is not drawn again.

It covers the numbers and names that are drawn, the code that draws them, and the version of
matplotlib. Where in doubt it covers more: an unneeded drawing costs a second, an outdated figure
misleads.
"""

import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nscl._version import __version__
from nscl.reporting.figures.plans import Plan
from nscl.reporting.gather import Run
from nscl.reporting.plot_data.sweeps import Sweep
from nscl.reporting.series import Section, Series

_OF_EPOCHS = ("step_time", "old_losses", "training_loss")
_OF_SPECTRA = ("singular_values", "layer_map")


def figure_digest(plan: Plan) -> str:
    """The digest of one figure, the same in every process and folder."""
    facts = [_code(), plan.function, [_facts(each, plan) for each in plan.arguments]]
    return hashlib.sha256(json.dumps(facts, default=repr, sort_keys=True).encode()).hexdigest()


def _facts(argument: Any, plan: Plan) -> Any:
    """What the plan's function may use of an argument."""
    if isinstance(argument, Section):
        return [_series(series, plan) for series in argument.shown]
    if isinstance(argument, Series):
        return _series(argument, plan)
    if isinstance(argument, list):
        return [_sweep(each, plan) for each in argument]
    return argument


def _sweep(found: Sweep, plan: Plan) -> list[Any]:
    series = [_series(each, plan) for each in found.series]
    return [found.method, found.option, found.values, found.beside, series]


def _series(series: Series, plan: Plan) -> list[Any]:
    """Names, what is kept of old tasks (open markers), and the runs that are shown."""
    if plan.function in _OF_SPECTRA:
        return [series.marked, [_spectra(run) for run in series.shown]]
    epochs = plan.function in _OF_EPOCHS
    runs = [[run.accuracy.rows, run.epochs if epochs else ()] for run in series.shown]
    return [
        series.method, series.marked, series.stores, runs, series.figure("acc"),
        series.figure("bwt"),
    ]  # fmt: skip


def _spectra(run: Run) -> str | None:
    """The digest of the run's file of spectra, which is faster than reading them."""
    if run.directory is None or not run.directory.spectra_path.exists():
        return None
    return hashlib.sha256(run.directory.spectra_path.read_bytes()).hexdigest()


@cache
def _code() -> list[str]:
    """Versions, and the sources of reports: a change of the code redraws its figures."""
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        sources.update(path.read_bytes())
    return [__version__, version("matplotlib"), version("numpy"), sources.hexdigest()]
