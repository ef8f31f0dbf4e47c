"""``nscl compare``: many methods on one benchmark, over seeds, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from nscl.cli.many_runs.engine_flags import HERE, THREADS_HELP, Where
from nscl.cli.run_settings import all_settings_but, given, nothing_given, settings_type

if TYPE_CHECKING:
    from nscl.training.config.schema import RunConfig as CompareSettings
else:
    CompareSettings = settings_type(
        all_settings_but("benchmark", "method", "seed", "options", "label"), help=THREADS_HELP
    )

NO_SETTINGS = nothing_given(CompareSettings)


def compare(
    benchmark: str | None = None,
    /,
    *,
    methods: str | None = None,
    seeds: str | None = None,
    plan: Path | None = None,
    where: Where = HERE,
    settings: Annotated[CompareSettings, Parameter(name="*", show_default=False)] = NO_SETTINGS,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Run methods on a benchmark; finished runs are skipped, broken ones continue.

    Parameters
    ----------
    benchmark
        A name of `nscl list benchmarks`.
    methods
        all (the default), or names with commas between them; of a plan also its variants' names.
    seeds
        How many (3, the default: seeds 0, 1, 2), or which (0,4,7).
    plan
        A TOML file with all of this; the command line wins.
    where
        Engine and jobs.
    settings
        Of all runs, as in `nscl run`.
    quiet
        Show the table and errors only.
    json
        Print one JSON object per line.
    """
    from nscl.cli.many_runs.run_many import Request, run_plan

    asked = methods if methods is not None or plan is not None else "all"
    request = Request(benchmark, asked, seeds, plan)
    return run_plan(request, given(settings), where, quiet=quiet, json=json)
