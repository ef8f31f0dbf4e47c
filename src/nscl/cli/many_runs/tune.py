"""``nscl tune``: choose the strength of methods on other classes than those reported."""

import json as jsonlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from nscl.cli.integer_option import Integer
from nscl.cli.many_runs.run_many import THREADS_HELP, EngineName
from nscl.cli.run_settings import all_settings_but, given, nothing_given, settings_type

if TYPE_CHECKING:
    from nscl.engines.job import Job
    from nscl.engines.tuning.tune import Tuning
    from nscl.engines.tuning.tuned_file import Tuned
    from nscl.training.config.schema import RunConfig as TuneSettings
else:
    TuneSettings = settings_type(
        all_settings_but("benchmark", "method", "seed", "out", "label"),
        help={
            "preset": "Values of all settings that are not given. Without: cpu for the paper's "
            "three benchmarks, quick elsewhere.",
            **THREADS_HELP,
        },
    )

NO_SETTINGS = nothing_given(TuneSettings)


def tune(
    method: str,
    benchmark: str,
    /,
    *,
    trials: Integer = 3,
    adopt: bool = False,
    force: bool = False,
    jobs: Integer | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    out: Path = Path("experiments/tuned"),
    runs: Path = Path("runs/tuning"),
    settings: Annotated[TuneSettings, Parameter(name="*", show_default=False)] = NO_SETTINGS,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Search a method's declared strength on three tasks of another class order, by ACC.

    Parameters
    ----------
    method
        A name, names with commas between them, or all.
    benchmark
        A name of `nscl list benchmarks`.
    trials
        The most trials of every method: its grid is thinned to that number. All have values
        for 3; with more, methods with fewer values have fewer trials.
    adopt
        Make the choice the preset's own, in the package.
    force
        Replace a record of other trials.
    jobs
        How many trials go on at once, the cores divided among them; here 1, on a cluster all.
    engine
        Processes of this machine, or a Ray cluster.
    address
        Of the Ray cluster, such as ray://head:10001.
    out
        The folder of the records: OUT/BENCHMARK-PRESET/METHOD.json.
    runs
        The folder of the trials' runs.
    settings
        Of all trials, as in `nscl run`.
    quiet
        Show the choices and errors only.
    json
        Print one JSON object per line.
    """
    from nscl.cli.many_runs.run_many import crowded, open_engine, print_failures, sharing
    from nscl.engines.display.board import choose_board
    from nscl.engines.execute import execute
    from nscl.engines.plan import check_data, choose_methods
    from nscl.engines.tuning.tune import Tuning, conclude_all, tunable_preset, without_strength

    names, _ = choose_methods(method, benchmark, scenario=settings.data.scenario)
    idle = without_strength(names)
    if engine == "local":
        check_data(benchmark, settings.data_dir)
    usual = {"preset": tunable_preset(benchmark), "options": {}}
    tunings = [
        Tuning.prepare(
            name,
            benchmark,
            {**usual, **given(settings), "out": runs},
            root=out,
            trials=trials,
            side_by_side=sharing(engine, jobs),
            force=force,
        )
        for name in names
        if name not in idle
    ]
    if adopt:
        for tuning in tunings:
            tuning.check_adoptable()
    todo = [job for tuning in tunings for job in tuning.open_jobs]
    place = open_engine(engine, jobs=jobs, address=address)
    board = choose_board(slots=place.slots, quiet=quiet, as_json=json)
    for note in (*crowded(todo, place), *_notes(idle, tunings, trials, todo)):
        board.say(note)
    outcome = execute(todo, place, board)
    found = conclude_all(tunings, outcome)
    if adopt:
        for tuning, tuned in found:
            if tuned is not None:
                tuning.adopt(tuned)
    _show([(tuning.path, tuned) for tuning, tuned in found if tuned is not None], json=json)
    print_failures(outcome, board)
    return 0 if all(tuned for _, tuned in found) else outcome.exit_code


def _notes(
    idle: Sequence[str], tunings: "Sequence[Tuning]", trials: int, todo: "Sequence[Job]"
) -> Iterator[str]:
    """What the user may not expect: nothing to tune, fewer trials, nothing left to do."""
    for name in idle:
        yield f"note: {name} has no strength to tune"
    for tuning in tunings:
        if len(tuning.trials) < trials:
            count = len(tuning.trials)
            yield f"note: {tuning.method} has {count} trials, its values make no more"
    if not todo:
        yield "all trials are on record"


def _show(found: "list[tuple[Path, Tuned]]", *, json: bool) -> None:
    from nscl.cli.console import wide_console

    view = Table(box=None, pad_edge=False)
    for column in ("method", "chosen", "ACC %", "trials", "record"):
        view.add_column(column)
    for path, tuned in found:
        if json:
            record = {"method": tuned.method, "settings": tuned.settings, "record": str(path)}
            print(jsonlib.dumps({"kind": "tuned", **record}))
        choice = tuned.choice
        values = "  ".join(f"{name} {value:g}" for name, value in choice.point.items())
        view.add_row(tuned.method, values, f"{choice.acc:.2f}", str(len(tuned.trials)), str(path))
    if found and not json:
        wide_console().print(view)
