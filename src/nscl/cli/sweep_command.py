"""``nscl sweep``: one method, any options over a grid of values, over seeds."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from nscl.cli.many import NOTHING_SAID, EngineName, Settings
from nscl.cli.whole import Whole


def sweep(
    benchmark: str | None = None,
    /,
    *,
    method: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set")] = None,
    seeds: str | None = None,
    plan: Path | None = None,
    jobs: Whole | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    out: Path | None = None,
    options: dict[str, Any] | None = None,
    settings: Annotated[Settings, Parameter(name="*", show_default=False)] = NOTHING_SAID,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Run every combination of the values of some options, for example --set method.a=10,20,30.

    Parameters
    ----------
    benchmark
        A name of `nscl list benchmarks`.
    method
        The method; adam-nscl if not said.
    set_
        NAME=VALUE,VALUE; any option of `nscl run`; several make a grid.
    seeds
        How many (3, the default: seeds 0, 1, 2), or which (0,4,7).
    plan
        A TOML file with all of this; the command line wins.
    jobs
        How many runs go on at once, the cores divided among them; here 1, on a cluster all.
    engine
        Processes of this machine, or a Ray cluster.
    address
        Of the Ray cluster, such as ray://head:10001.
    out
        The folder of the runs; runs if not said.
    options
        Of the method, for all runs: --method.NAME.
    settings
        What holds for all runs, as in `nscl run`.
    quiet
        Show the table and errors only.
    json
        Print one JSON object per line.
    """
    from nscl.cli.many import Request, run_plan
    from nscl.engines.plan import parse_axes
    from nscl.errors import NsclError

    if plan is None and not set_:
        raise NsclError("say what to vary: --set method.a=10,20,30, or --plan FILE")
    axes = parse_axes(set_ or [])
    methods = method if method is not None or plan is not None else "adam-nscl"
    request = Request(benchmark, methods, seeds, plan, sweep=axes)
    said = {**settings.said(), "out": out, "options": options or {}}
    return run_plan(request, said, jobs=jobs, engine=engine, address=address, quiet=quiet,
                    json=json)  # fmt: skip
