"""The page: one self-contained HTML file, from a template that escapes everything it is given."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from nscl._version import __version__
from nscl.reporting.gather import Run
from nscl.reporting.page.commands import command
from nscl.reporting.page.pairs import pair_runs
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

#: Heading, class, and what it means, of the two columns that all tables begin with.
ROW_COLUMNS = (
    ("Method", "the method, or the name its plan gave this row; † keeps samples of old tasks"),
    ("Seeds", "finished runs that differ in nothing but their seed; numbers are their mean ± std"),
)
RUN_COLUMNS = (
    ("Method", "name", "the row of the table above that this run belongs to"),
    ("Run", "name", "the folder of the run: benchmark, method, seed and a digest of its settings"),
    ("Seed", "", "seeds the weights, the order of the examples and all other randomness"),
    ("State", "name", "finished, or how many tasks have been learned so far"),
    ("ACC", "", "average accuracy (%) over all tasks so far"),
    ("BWT", "", "backward transfer (points): what later tasks did to earlier ones"),
    ("Seconds", "", "time of the whole run, evaluation included"),
    ("Command", "name", "the command that repeats the run, every setting written out"),
)
BWT = next(column for column in COLUMNS if column.key == "bwt")


def render(
    found: Sequence[Section],
    *,
    missing: Mapping[str, Sequence[LeftOut]] | None = None,
    skipped: Sequence[Skipped] = (),
    live: str | None = None,
    highlight: Sequence[str] = (),
) -> str:
    """Return the page.

    ``missing`` maps a section's title to the figures left out, where these are known already.
    ``live`` is the version of a report that is being watched. ``highlight`` names rows or methods
    whose curves are shown from the beginning.
    """
    # Altair takes half a second to import: not before there is a page to make.
    from nscl.reporting.page.charts.theme import CONFIG

    page, style = _template()
    vega, script = scripts()
    left = missing or {section.title: left_out(section) for section in found}
    shown = [_section(section, left.get(section.title, ()), highlight) for section in found]
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
            "pairs": [each["pair"] for each in shown],
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


def _section(
    section: Section, missing: Sequence[LeftOut], highlight: Sequence[str]
) -> dict[str, Any]:
    from nscl.reporting.page.charts.cards import cards, first_swatches, key_of, legend

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
        "legend": legend(section, highlight),
        "pair": _pair(section),
        "swatches": first_swatches(2),
        "run_columns": RUN_COLUMNS,
        "cards": [{**vars(card), "lines": key_of(card)} for card in cards(section)],
        "left_out": missing,
        "row_columns": ROW_COLUMNS,
        "twins": section.twins,
        "runs": [_run(label, run) for label, run in found],
    }


def _pair(section: Section) -> dict[str, Any] | None:
    """Runs to be set side by side and the charts for it; None with a single run."""
    from altair.utils.schemapi import debug_mode

    from nscl.reporting.page.charts.pair import pair_charts

    runs = pair_runs(section)
    if len(runs) < 2:
        return None
    with debug_mode(False):
        return {"runs": runs, "charts": pair_charts(section)}


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
