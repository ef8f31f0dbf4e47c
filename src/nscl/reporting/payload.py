"""What the page draws from: one JSON object per section, rounded, thinned, and small."""

from typing import Any

from nscl.metrics import Summary
from nscl.reporting import views
from nscl.reporting.errors import MissingDataError
from nscl.reporting.looks import Look, looks, some
from nscl.reporting.series import Section, Series
from nscl.reporting.spectral import Spectrum, evenly, layer_names, short_names, spectra, table

# 50 runs must fit into 5 MB; a curve on a screen needs no more points than this.
MOST_POINTS, MOST_LAYERS, MOST_TASKS, MOST_EPOCHS = 100, 8, 3, 300
# Significant digits in maps, whose cells are rounded once more: to those of the paper's figures.
EXACT = 7


def payload(section: Section) -> dict[str, Any]:
    """Everything the charts of one section need."""
    pairs = zip(section.shown, looks(section), strict=True)
    return {
        "tasks": section.tasks,
        "series": [_series(series, look, section.tasks) for series, look in pairs],
        "sweeps": _sweeps(section),
    }


def _series(series: Series, look: Look, tasks: int) -> dict[str, Any]:
    acc, bwt = series.figure("acc"), series.figure("bwt")
    return {
        "label": series.marked,
        "look": list(look),
        "keeps": series.stores == "data",
        "seeds": len(series.shown),
        "acc": [_pair(p) for p in views.acc_curve(series)],
        "matrix": [[_digits(v, EXACT) for v in row] for row in views.mean_matrix(series)],
        "tasks": [[_pair(p) for p in views.task_curve(series, t)] for t in range(series.tasks)],
        "end": [_pair(bwt), _pair(acc)] if acc and bwt else None,
        "times": _or_none(lambda: [_pair(p, 3) for p in views.step_times(series)]),
        "losses": _or_none(lambda: _losses(series)),
        "layers": _or_none(lambda: _layers(series)),
    }


def _or_none(make: Any) -> Any:
    try:
        return make()
    except MissingDataError:
        return None


def _pair(value: Summary, digits: int = 2) -> list[float]:
    """Mean, and the deviation if there is one."""
    mean = [round(value.mean, digits)]
    return mean if value.std is None else [*mean, round(value.std, digits)]


def _losses(series: Series) -> dict[str, Any]:
    found = views.old_losses(series)
    kept = evenly(len(found.places), MOST_EPOCHS)
    return {
        "places": [round(found.places[i], 3) for i in kept],
        "curves": [[_digits(curve[i]) for i in kept] for curve in found.curves],
    }


def _digits(value: float | None, digits: int = 3) -> float | None:
    """So many significant digits."""
    return None if value is None else float(f"{value:.{digits}g}")


def _layers(series: Series) -> dict[str, Any]:
    run, tasks = spectra(series)
    names = layer_names(tasks)
    shown = short_names(names)
    kept = [[*tasks][i] for i in evenly(len(tasks), MOST_TASKS)]
    curves = [
        {"layer": shown[i], "task": task + 1, **_curve(tasks[task][names[i]])}
        for i in evenly(len(names), MOST_LAYERS)
        for task in kept
        if names[i] in tasks[task]
    ]
    return {
        "run": run.name,
        "names": shown,
        "tasks": [task + 1 for task in tasks],
        "share": [[_digits(v, EXACT) for v in row] for row in table(tasks, "share")],
        "free": [[_digits(v, EXACT) for v in row] for row in table(tasks, "free")],
        "curves": curves,
    }


def _curve(spectrum: Spectrum) -> dict[str, Any]:
    kept = evenly(len(spectrum.values), MOST_POINTS)
    return {
        "share": _digits(spectrum.share),
        "free": round(spectrum.free),
        "size": len(spectrum.values),
        "x": [i + 1 for i in kept],
        "values": [_digits(float(spectrum.values[i])) for i in kept],
        "weights": [round(float(spectrum.weights[i]), 2) for i in kept],
    }


def _sweeps(section: Section) -> list[dict[str, Any]]:
    try:
        found = views.sweeps(section)
    except MissingDataError:
        return []
    return [
        {
            "name": f"{chart[0].option} ({chart[0].method})",
            "log": views.logarithmic(chart),
            "lines": [
                _sweep(sweep, look) for sweep, look in zip(chart, some(len(chart)), strict=True)
            ],
        }
        for chart in views.together(found)
    ]


def _sweep(sweep: views.Sweep, look: Look) -> dict[str, Any]:
    return {
        "label": sweep.label,
        "beside": bool(sweep.beside),
        "look": list(look),
        "x": sweep.values,
        "acc": [_pair(p) for s in sweep.series if (p := s.figure("acc"))],
        "bwt": [_pair(p) for s in sweep.series if (p := s.figure("bwt"))],
    }
