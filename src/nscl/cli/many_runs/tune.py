"""``nscl tune``: choose the strength of methods on other classes than those reported."""

import json as jsonlib
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from nscl.cli.integer_option import Integer
from nscl.cli.many_runs.engine_flags import HERE, THREADS_HELP, EngineFlags, Where
from nscl.cli.run_settings import all_settings_but, given, nothing_given, settings_type

if TYPE_CHECKING:
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
    trials: Integer = 7,
    adopt: bool = False,
    force: bool = False,
    where: Where = HERE,
    out: Path = Path("experiments/tuned"),
    runs: Path = Path("runs/tuning"),
    settings: Annotated[TuneSettings, Parameter(name="*", show_default=False)] = NO_SETTINGS,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Search a method's rate and strength on five tasks of another class order, by held-out ACC.

    Parameters
    ----------
    method
        A name, names with commas between them, or all.
    benchmark
        A name of `nscl list benchmarks`.
    trials
        The most trials of every method: rates first, then each strength around the best, and one
        value further when an end wins. The two best are repeated with a second seed.
    adopt
        Make the choice the preset's own, in the package.
    force
        Replace a record of other trials.
    where
        Engine and jobs.
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
    from nscl.engines.plan import check_data, choose_methods
    from nscl.engines.tuning.tune import Tuning, tunable_preset, without_trials

    names, _ = choose_methods(method, benchmark, scenario=settings.data.scenario)
    idle = without_trials(names)
    if where.is_local:
        check_data(benchmark, settings.data_dir)
    usual = {"preset": tunable_preset(benchmark), "options": {}}
    tunings = [
        Tuning.prepare(
            name,
            benchmark,
            {**usual, **given(settings), "out": runs},
            root=out,
            trials=trials,
            side_by_side=where.side_by_side,
            force=force,
        )
        for name in names
        if name not in idle
    ]
    for tuning in tunings if adopt else ():
        tuning.check_adoptable()
    notes = [f"note: {name} has nothing to tune" for name in idle]
    return _tune_all(tunings, where, notes, adopt=adopt, quiet=quiet, json=json)


def _tune_all(
    tunings: "Sequence[Tuning]",
    where: EngineFlags,
    notes: Iterable[str],
    *,
    adopt: bool,
    quiet: bool,
    json: bool,
) -> int:
    """Run what is not on record, round by round; write and show the choices."""
    from nscl.cli.many_runs.run_many import crowded, print_failures
    from nscl.engines.display.board import choose_board
    from nscl.engines.execute import PlanOutcome, execute

    outcome, seen = PlanOutcome(()), set[str]()
    for number in count(1):
        todo = [job for tuning in tunings for job in tuning.next_jobs()]
        engine = where.open()
        board = choose_board(slots=engine.slots, quiet=quiet, as_json=json)
        if number == 1:
            first = [] if todo else ["all trials are on record"]
            for note in (*crowded(todo, engine), *notes, *first):
                board.say(note)
        if not todo or {job.name for job in todo} <= seen:
            break  # nothing to do, or nothing that a further attempt would change
        seen |= {job.name for job in todo}
        outcome = execute(todo, engine, board)
        for tuning in tunings:
            tuning.take_failures(outcome.endings)
        if outcome.signal is not None:
            break
    found = [(tuning, tuning.conclude()) for tuning in tunings]
    for tuning, tuned in found if adopt else ():
        if tuned is not None:
            tuning.adopt(tuned)
    _show([(tuning.path, tuned) for tuning, tuned in found if tuned is not None], json=json)
    print_failures(outcome, board)
    return 0 if all(tuned for _, tuned in found) else outcome.exit_code or 2


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
        view.add_row(tuned.method, values, f"{tuned.acc:.2f}", str(len(tuned.trials)), str(path))
    if found and not json:
        wide_console().print(view)
