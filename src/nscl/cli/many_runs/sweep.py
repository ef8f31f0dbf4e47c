"""``nscl sweep``: one method, any options over a grid of values, over seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from nscl.cli.many_runs.engine_flags import HERE, THREADS_HELP, Where
from nscl.cli.run_settings import all_settings_but, given, nothing_given, settings_type

if TYPE_CHECKING:
    from nscl.training.config.schema import RunConfig as SweepSettings
else:
    SweepSettings = settings_type(all_settings_but("benchmark", "seed", "label"), help=THREADS_HELP)

NO_SETTINGS = nothing_given(SweepSettings)


def sweep(
    benchmark: str | None = None,
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set")] = None,
    seeds: str | None = None,
    plan: Path | None = None,
    where: Where = HERE,
    settings: Annotated[SweepSettings, Parameter(name="*", show_default=False)] = NO_SETTINGS,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Run every combination of the values of some options, for example --set method.a=10,20,30.

    Parameters
    ----------
    benchmark
        A name of `nscl list benchmarks`.
    set_
        NAME=VALUE,VALUE; any option of `nscl run`; several make a grid.
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
    from nscl.engines.plan import parse_axes
    from nscl.errors import NsclError

    if plan is None and not set_:
        raise NsclError("nothing to vary: give --set method.a=10,20,30, or --plan FILE")
    axes = parse_axes(set_ or [])
    chosen = given(settings)
    method = chosen.pop("method", settings.method if plan is None else None)
    request = Request(benchmark, method, seeds, plan, sweep=axes)
    return run_plan(request, chosen, where, quiet=quiet, json=json)
