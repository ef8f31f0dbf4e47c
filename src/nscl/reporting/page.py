"""The page: one self-contained HTML file, from a template that escapes everything it is given."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from nscl._version import __version__
from nscl.reporting.commands import command
from nscl.reporting.formats import notes
from nscl.reporting.gather import Run
from nscl.reporting.missing import LeftOut, left_out
from nscl.reporting.payload import payload
from nscl.reporting.series import Section
from nscl.reporting.tables import COLUMNS, make_table
from nscl.results import Skipped, remarks

BWT = next(column for column in COLUMNS if column.key == "bwt")
_SCRIPTS = ("memory.js", "scales.js", "charts.js", "table.js", "page.js")


def render(
    found: Sequence[Section],
    *,
    told: Mapping[str, Sequence[LeftOut]] | None = None,
    skipped: Sequence[Skipped] = (),
    live: str | None = None,
) -> str:
    """Return the page.

    ``told`` has the figures left out by a section's title, where they are known already; ``live``
    is the version of a report that is being watched.
    """
    template, style, script = _parts()
    missing = told or {section.title: left_out(section) for section in found}
    page: str = template.render(
        version=__version__,
        style=style,
        script=script,
        policy=_policy(script, live=live is not None),
        live=live,
        skipped=skipped,
        runs=sum(len(series.runs) for section in found for series in section.series),
        sections=[_section(section, missing.get(section.title, ())) for section in found],
        data=[payload(section) for section in found],
    )
    return page


@cache
def _parts() -> tuple[Any, str, str]:
    folder = files("nscl.reporting") / "templates"
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((folder / "report.html").read_text("utf-8"))
    scripts = [(folder / name).read_text("utf-8") for name in _SCRIPTS]
    # One function around all: nothing of ours is reachable, or to be overwritten, from outside.
    script = '(() => {\n"use strict";\n' + "\n".join(scripts) + "})();\n"
    return template, (folder / "report.css").read_text("utf-8"), script


def _policy(script: str, *, live: bool) -> str:
    """No network, and no script but this very one: its hash is part of the page's policy."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _section(section: Section, missing: Sequence[LeftOut]) -> dict[str, Any]:
    table = make_table(section)
    found = [(series.label, run) for series in section.series for run in series.runs]
    return {
        "title": section.benchmark,
        "preset": section.preset,
        "stream": section.stream,
        "tasks": section.tasks,
        "finished": sum(run.finished for _, run in found),
        "going_on": sum(not run.finished for _, run in found),
        "table": table,
        "notes": notes(table),
        "left_out": missing,
        "twins": section.twins,
        "runs": [_run(label, run) for label, run in found],
    }


def _run(label: str, run: Run) -> dict[str, Any]:
    matrix = run.accuracy
    return {
        "method": label,
        "name": run.name,
        "seed": run.seed,
        "state": "finished" if run.finished else f"{matrix.tasks} tasks so far",
        "acc": f"{matrix.acc:.2f}" if matrix.tasks else "–",
        "bwt": BWT.text(matrix.bwt) if matrix.tasks else "–",
        "seconds": f"{run.result.seconds:.1f}" if run.result else "–",
        "command": command(run),
        "told": list(remarks([run.result])) if run.result else [],
    }
