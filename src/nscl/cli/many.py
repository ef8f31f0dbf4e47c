"""What the commands for many runs have in common: their settings, the engine, table and endings."""

import json as jsonlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from rich.console import Console

from nscl.engines.board import Board, choose_board
from nscl.engines.execute import Engine, Outcome, execute
from nscl.engines.job import Job
from nscl.engines.local import Local, available_cores
from nscl.engines.plan import check_data, parse_seeds
from nscl.engines.plan_file import PlanFile
from nscl.engines.summary import footnotes, summarise, table
from nscl.engines.wording import counted
from nscl.errors import NsclError
from nscl.training.config import Data, Model, Optim, Part, merge, validated

EngineName = Literal["local", "ray"]


class Settings(Part):
    """What holds for all runs: the settings of ``nscl run`` but method, seed and out."""

    preset: Literal["paper", "official", "cpu", "quick"] | None = None
    """All that is not said. Without: paper for the paper's three benchmarks, quick elsewhere."""
    optim: Optim = Optim()
    data: Data = Data()
    model: Model = Model()
    bn_stats: Literal["shared", "frozen", "per_task"] = "shared"
    precision: Literal["fp32", "bf16"] = "fp32"
    eval_each_epoch: bool = False
    track_old_losses: int = Field(0, ge=0)
    device: str = "auto"
    threads: int | None = Field(None, ge=1)
    """Of each run; the cores divided by the jobs if not said."""
    data_dir: Path | None = None
    """Where data are looked for first; then $NSCL_DATA, then the cache."""

    def said(self) -> dict[str, Any]:
        """What the user said, and nothing else."""
        return self.model_dump(exclude_unset=True)


NOTHING_SAID = Settings()
NO_EDGE = 100_000  # columns: more than any table has


def open_engine(name: EngineName, *, jobs: int | None, address: str | None = None) -> Engine:
    """The place where runs go: one at a time here, all at once on a cluster, unless said."""
    if jobs is not None and jobs < 1:
        raise NsclError(f"--jobs {jobs}: say how many runs may go on at once, from 1 on")
    if name == "local" and address is not None:
        raise NsclError("--address is the address of a Ray cluster: add --engine ray")
    if name == "ray":
        from nscl.engines.ray_engine import RayEngine

        return RayEngine(address=address, jobs=jobs)
    return Local(jobs=jobs or 1)


def sharing(name: EngineName, jobs: int | None) -> int | None:
    """How many runs share the cores of this machine; on a cluster none does."""
    return None if name == "ray" else jobs or 1


@dataclass(frozen=True)
class Request:
    """What a plan may say, as the command line said it; None: not said."""

    benchmark: str | None
    methods: str | None
    seeds: str | None
    file: Path | None
    sweep: Mapping[str, list[Any]] = field(default_factory=dict)

    def resolve(self) -> PlanFile:
        """The plan: the file's, with what was said instead, or all from what was said."""
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
            raise NsclError("say which benchmark, such as split-digits-5, or --plan FILE")
        return validated(PlanFile, {k: v for k, v in over.items() if v is not None})


def run_plan(
    request: Request,
    said: Mapping[str, Any],
    *,
    jobs: int | None,
    engine: EngineName,
    address: str | None,
    quiet: bool,
    json: bool,
) -> int:
    """Resolve, check, run, report."""
    file = request.resolve()
    plan, notes = file.plan(said)
    if engine == "local":
        folder = merge(plan.settings, said).get("data_dir")
        check_data(plan.benchmark, None if folder is None else Path(folder))
    runs = plan.jobs(side_by_side=sharing(engine, jobs))
    place = open_engine(engine, jobs=jobs, address=address)
    told = (file.description, *notes) if file.description else notes
    return run_all(runs, place, quiet=quiet, json=json, notes=told, expected=file.expected)


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
    complain(outcome, board)
    return outcome.exit_code


def wide_console() -> Console:
    """A console that neither folds nor cuts lines where nobody looks at a screen."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=NO_EDGE)


def complain(outcome: Outcome, board: Board) -> None:
    """List runs without a result on standard error, one line each."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    begun = [ending for ending in outcome.troubles if ending.error]
    for ending in begun:
        if outcome.signal is None:
            errors.print(f"nscl: {ending.job.title} {ending.state}: {ending.error}")
            errors.print(f"      log: {ending.job.log}")
    if outcome.signal is not None:
        errors.print(
            f"nscl: stopped with {board.count('done')} of {counted(len(board.runs))} done; "
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
