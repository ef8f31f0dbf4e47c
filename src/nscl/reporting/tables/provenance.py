"""Where the numbers of a section come from: dates, commit, processor, torch, seeds."""

from collections.abc import Iterable

from nscl.reporting.gather import Run
from nscl.reporting.series import Section

MOST = 3  # different values that are listed


def provenance(section: Section) -> list[str]:
    """A part for each thing that is known, the seeds first; the last part names what is not.

    Empty without a finished run.
    """
    runs = [run for series in section.series for run in series.finished]
    if not runs:
        return []
    known = {name: _values(name, runs) for name in ("processor", "torch", "nscl", "commit")}
    dates = sorted({str(run.environment.get("date") or "")[:10] for run in runs} - {""})
    found = [_seeds(runs), *([" to ".join(dict.fromkeys((dates[0], dates[-1])))] if dates else [])]
    found += [text if n == "processor" else f"{n} {text}" for n, text in known.items() if text]
    missing = [*([] if dates else ["date"]), *(name for name, text in known.items() if not text)]
    return found + ([f"not recorded: {', '.join(missing)}"] if missing else [])


def _values(name: str, runs: Iterable[Run]) -> str:
    values = list(dict.fromkeys(str(v) for run in runs if (v := run.environment.get(name))))
    more = f" and {len(values) - MOST} more" if len(values) > MOST else ""
    return ", ".join(values[:MOST]) + more


def _seeds(runs: Iterable[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
