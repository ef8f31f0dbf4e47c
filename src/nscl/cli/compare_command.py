"""``nscl compare``: many methods on one benchmark, over seeds, side by side."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nscl.cli.many import NOTHING_SAID, EngineName, Settings


def compare(
    benchmark: str,
    /,
    *,
    methods: str = "all",
    seeds: str = "3",
    jobs: int = 1,
    engine: EngineName = "local",
    address: str | None = None,
    out: Path = Path("runs"),
    settings: Annotated[Settings, Parameter(name="*")] = NOTHING_SAID,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Run methods on a benchmark; finished runs are skipped, broken ones continue.

    Parameters
    ----------
    benchmark
        A name of `nscl list benchmarks`.
    methods
        all, or names with commas between them.
    seeds
        How many (3: seeds 0, 1, 2), or which (0,4,7).
    jobs
        How many runs go on at once; the cores are divided among them.
    engine
        Processes of this machine, or a Ray cluster.
    address
        Of the Ray cluster, such as ray://head:10001.
    out
        The folder of the runs.
    settings
        What holds for all runs, as in `nscl run`.
    quiet
        Show the table and errors only.
    json
        Print one JSON object per line.
    """
    from nscl.cli.many import open_engine, run_all
    from nscl.engines.plan import Plan, Variant, check_data, choose_methods, parse_seeds

    said = {**settings.said(), "out": out}
    names, unfit = choose_methods(methods, benchmark, scenario=settings.data.scenario)
    variants = tuple(Variant(name, name) for name in names)
    plan = Plan(benchmark, variants, parse_seeds(seeds), said)
    place = open_engine(engine, jobs=jobs, address=address)
    check_data(benchmark, settings.data_dir)
    notes = (f"not for this kind of stream: {', '.join(unfit)}",) if unfit else ()
    return run_all(plan.jobs(side_by_side=jobs), place, quiet=quiet, json=json, notes=notes)
