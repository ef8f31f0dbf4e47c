"""``nscl tune``: choose the strength of methods on other classes than those reported."""

import json as jsonlib
from collections.abc import Iterable, Iterator, Sequence
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
    trials: Integer = 3,
    adopt: bool = False,
    force: bool = False,
    where: Where = HERE,
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
    from nscl.engines.tuning.tune import Tuning, tunable_preset, without_strength

    names, _ = choose_methods(method, benchmark, scenario=settings.data.scenario)
    idle = without_strength(names)
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
    notes = _notes(idle, tunings, trials)
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
    """Run what is not on record, write and show the choices; return the exit code."""
    from nscl.cli.many_runs.run_many import crowded, print_failures
    from nscl.engines.display.board import choose_board
    from nscl.engines.execute import execute
    from nscl.engines.tuning.tune import conclude_all

    todo = [job for tuning in tunings for job in tuning.open_jobs]
    engine = where.open()
    board = choose_board(slots=engine.slots, quiet=quiet, as_json=json)
    for note in (*crowded(todo, engine), *notes):
        board.say(note)
    outcome = execute(todo, engine, board)
    found = conclude_all(tunings, outcome)
    for tuning, tuned in found if adopt else ():
        if tuned is not None:
            tuning.adopt(tuned)
    _show([(tuning.path, tuned) for tuning, tuned in found if tuned is not None], json=json)
    print_failures(outcome, board)
    return 0 if all(tuned for _, tuned in found) else outcome.exit_code


def _notes(idle: Sequence[str], tunings: "Sequence[Tuning]", trials: int) -> Iterator[str]:
    """What the user may not expect: nothing to tune, fewer trials, nothing left to do."""
    for name in idle:
        yield f"note: {name} has no strength to tune"
    for tuning in tunings:
        if len(tuning.trials) < trials:
            count = len(tuning.trials)
            yield f"note: {tuning.method} has {count} trials, its values make no more"
    if not any(tuning.open_jobs for tuning in tunings):
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
