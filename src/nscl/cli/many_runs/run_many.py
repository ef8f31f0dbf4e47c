"""What the commands for many runs share: the plan, the engine, the table and the exit code."""

import json as jsonlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from nscl.cli.console import wide_console
from nscl.cli.many_runs.engine_flags import EngineFlags
from nscl.engines.display.board import Board, choose_board
from nscl.engines.display.text import count_runs
from nscl.engines.execute import Engine, PlanOutcome, execute
from nscl.engines.job import Job
from nscl.engines.plan import check_data, check_models, check_trackers, parse_seeds
from nscl.engines.plan_file import PlanFile
from nscl.engines.summary import footnotes, summarise, table
from nscl.engines.workers.local import Local, available_cores
from nscl.errors import NsclError
from nscl.training.config.layers import merge
from nscl.training.config.validation import validated


@dataclass(frozen=True)
class Request:
    """The parts of a plan that the command line may give; None where it does not."""

    benchmark: str | None
    methods: str | None
    seeds: str | None
    file: Path | None
    sweep: Mapping[str, list[Any]] = field(default_factory=dict)

    def resolve(self) -> PlanFile:
        """The plan: the file's with the parts given here in place of its own, or these alone."""
        over: dict[str, Any] = {
            "benchmark": self.benchmark,
            "methods": self.methods,
            "seeds": None if self.seeds is None else list(parse_seeds(self.seeds)),
        }
        if self.sweep:
            over["sweep"] = dict(self.sweep)
        if self.file is not None:
            return PlanFile.read(self.file, over)
        if self.benchmark is None:
            raise NsclError("no benchmark: name one, such as split-digits-5, or give --plan FILE")
        return validated(PlanFile, {k: v for k, v in over.items() if v is not None})


def run_plan(
    request: Request,
    given: Mapping[str, Any],
    where: EngineFlags,
    *,
    quiet: bool,
    json: bool,
) -> int:
    """Resolve the plan, check its data, run it and print its table; return the exit code."""
    file = request.resolve()
    plan, notes = file.plan(given)
    if where.is_local:
        folder = merge(plan.settings, given).get("data_dir")
        check_data(plan.benchmark, None if folder is None else Path(folder))
    runs = plan.jobs(side_by_side=where.side_by_side)
    if where.is_local:
        check_models(runs)
        check_trackers(runs)
    lines = (file.description, *notes) if file.description else notes
    return run_all(runs, where.open(), quiet=quiet, json=json, notes=lines, expected=file.expected)


def run_all(
    jobs: list[Job],
    engine: Engine,
    *,
    quiet: bool,
    json: bool,
    notes: tuple[str, ...] = (),
    expected: Mapping[str, Mapping[str, Any]] | None = None,
) -> int:
    """Run the jobs, print the table and what went wrong; return the exit code."""
    board = choose_board(slots=engine.slots, quiet=quiet, as_json=json)
    for note in (*notes, *crowded(jobs, engine)):
        board.say(note)
    outcome = execute(jobs, engine, board)
    rows = summarise(jobs)
    console = wide_console()
    if json:
        print(jsonlib.dumps({"kind": "table", "rows": [row.to_dict() for row in rows]}))
    elif rows:
        width = console.width if console.is_terminal else None
        console.print(table(rows, expected=expected, width=width))
        for note in footnotes(rows):
            console.print(note, markup=False)
    print_failures(outcome, board)
    return outcome.exit_code


def print_failures(outcome: PlanOutcome, board: Board) -> None:
    """List runs without a result on standard error, one line each."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    begun = [ending for ending in outcome.troubles if ending.error]
    for ending in begun:
        if outcome.signal is None:
            errors.print(f"nscl: {ending.job.title} {ending.state}: {ending.error}")
            errors.print(f"      log: {ending.job.log}")
    if outcome.signal is not None:
        errors.print(
            f"nscl: stopped with {board.count('done')} of {count_runs(len(board.runs))} done; "
            "everything is saved. Continue with the same command"
        )


def crowded(jobs: list[Job], engine: Engine) -> list[str]:
    """A note when more threads are asked for than there are cores."""
    threads = max((job.config.threads or 1 for job in jobs), default=1)
    wanted = threads * min(engine.slots, len(jobs))
    cores = available_cores()
    if not isinstance(engine, Local) or wanted <= cores:
        return []
    return [f"note: {wanted} threads on {cores} cores slow each other; lower --jobs or --threads"]
