"""The page: one self-contained HTML file, from a template that escapes everything it is given."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from nscl._version import __version__
from nscl.reporting.gather import Run
from nscl.reporting.page.commands import command
from nscl.reporting.page.scripts import policy, scripts, template
from nscl.reporting.plot_data.missing import LeftOut, left_out
from nscl.reporting.plot_styles import COLOURS
from nscl.reporting.series import Section
from nscl.reporting.tables.columns import COLUMNS
from nscl.reporting.tables.notes import notes
from nscl.reporting.tables.provenance import provenance
from nscl.reporting.tables.rows import GROUPS, make_table
from nscl.reporting.tables.sentence import sentence
from nscl.reporting.tables.timing import is_quiet
from nscl.results import Skipped, remarks

BWT = next(column for column in COLUMNS if column.key == "bwt")


def render(
    found: Sequence[Section],
    *,
    missing: Mapping[str, Sequence[LeftOut]] | None = None,
    skipped: Sequence[Skipped] = (),
    live: str | None = None,
) -> str:
    """Return the page.

    ``missing`` maps a section's title to the figures left out, where these are known already.
    ``live`` is the version of a report that is being watched.
    """
    # Altair takes half a second to import: not before there is a page to make.
    from nscl.reporting.page.charts.theme import CONFIG

    page, style = _template()
    vega, script = scripts()
    left = missing or {section.title: left_out(section) for section in found}
    shown = [_section(section, left.get(section.title, ())) for section in found]
    return page.render(
        version=__version__,
        style=style,
        vega=vega,
        script=script,
        policy=policy(live=live is not None),
        live=live,
        skipped=skipped,
        runs=sum(len(series.runs) for section in found for series in section.series),
        sections=shown,
        data={
            "config": CONFIG,
            "sections": [{c["key"]: c["spec"] for c in each["cards"]} for each in shown],
        },
    )


@cache
def _template() -> tuple[Template, str]:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    style = ":root { " + " ".join(f"--c{i}: {c};" for i, c in enumerate(COLOURS)) + " }\n"
    return environment.from_string(template("report.html")), style + template("report.css")


def _section(section: Section, missing: Sequence[LeftOut]) -> dict[str, Any]:
    from nscl.reporting.page.charts.cards import cards, key_of, legend

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
        "groups": [(GROUPS[name], rows) for name, rows in table.groups.items()],
        # No line ends between a number and its deviation or unit.
        "sentence": sentence(table).replace(" ± ", "\xa0±\xa0").replace(" %", "\xa0%"),
        "provenance": provenance(section),
        "is_quiet": is_quiet(section.series),
        "notes": notes(table),
        "legend": legend(section),
        "cards": [{**vars(card), "lines": key_of(card)} for card in cards(section)],
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
        "remarks": list(remarks([run.result])) if run.result else [],
    }
