"""``nscl compare``: many methods on one benchmark, over seeds, side by side."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nscl.cli.many import NOTHING_SAID, EngineName, Settings
from nscl.cli.whole import Whole


def compare(
    benchmark: str | None = None,
    /,
    *,
    methods: str | None = None,
    seeds: str | None = None,
    plan: Path | None = None,
    jobs: Whole | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    out: Path | None = None,
    settings: Annotated[Settings, Parameter(name="*", show_default=False)] = NOTHING_SAID,
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
    jobs
        How many runs go on at once, the cores divided among them; here 1, on a cluster all.
    engine
        Processes of this machine, or a Ray cluster.
    address
        Of the Ray cluster, such as ray://head:10001.
    out
        The folder of the runs; runs if not said.
    settings
        What holds for all runs, as in `nscl run`.
    quiet
        Show the table and errors only.
    json
        Print one JSON object per line.
    """
    from nscl.cli.many import Request, run_plan

    asked = methods if methods is not None or plan is not None else "all"
    request = Request(benchmark, asked, seeds, plan)
    said = {**settings.said(), "out": out}
    return run_plan(request, said, jobs=jobs, engine=engine, address=address, quiet=quiet,
                    json=json)  # fmt: skip
