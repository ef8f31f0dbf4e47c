"""What the commands for many runs have in common: their settings, the engine, table and endings."""

import json as jsonlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from rich.console import Console

from nscl.engines.board import Board, choose_board
from nscl.engines.execute import Engine, Outcome, execute
from nscl.engines.job import Job
from nscl.engines.local import Local, available_cores
from nscl.engines.summary import FOOTNOTE, summarise, table
from nscl.errors import NsclError
from nscl.training.config import Data, Model, Optim, Part

EngineName = Literal["local", "ray"]


class Settings(Part):
    """What holds for all runs: the settings of ``nscl run`` but method, seed and out."""

    preset: Literal["paper", "official", "cpu", "quick"] | None = None
    optim: Optim = Optim()
    data: Data = Data()
    model: Model = Model()
    bn_stats: Literal["shared", "frozen", "per_task"] = "shared"
    precision: Literal["fp32", "bf16"] = "fp32"
    eval_each_epoch: bool = False
    device: str = "auto"
    threads: int | None = Field(None, ge=1)  # of each run; None: the cores divided by the jobs
    data_dir: Path | None = None

    def said(self) -> dict[str, Any]:
        """What the user said, and nothing else."""
        return self.model_dump(exclude_unset=True)


NOTHING_SAID = Settings()


def open_engine(name: EngineName, *, jobs: int, address: str | None = None) -> Engine:
    """The place where runs go."""
    if jobs < 1:
        raise NsclError(f"--jobs {jobs}: say how many runs may go on at once, from 1 on")
    if name == "local" and address is not None:
        raise NsclError("--address is the address of a Ray cluster: add --engine ray")
    return Local(jobs=jobs)


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
        board.say(f"note: {note}")
    outcome = execute(jobs, engine, board)
    rows = summarise(jobs)
    console = wide_console()
    if json:
        print(jsonlib.dumps({"kind": "table", "rows": [row.to_dict() for row in rows]}))
    elif rows:
        console.print(table(rows, expected=expected))
        if any(row.keeps_data for row in rows):
            console.print(FOOTNOTE)
    complain(outcome, board)
    return outcome.exit_code


def wide_console() -> Console:
    """A console that does not fold lines where nobody looks at a screen."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


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
            f"nscl: stopped with {board.count('done')} of {len(board.runs)} runs done; "
            "everything is saved. Continue with the same command"
        )


def crowded(jobs: list[Job], engine: Engine) -> list[str]:
    """A note when more threads are asked for than there are cores."""
    threads = max((job.config.threads or 1 for job in jobs), default=1)
    wanted = threads * min(engine.slots, len(jobs))
    cores = available_cores()
    if not isinstance(engine, Local) or wanted <= cores:
        return []
    return [f"{wanted} threads at once on {cores} cores slow each other; lower --jobs or --threads"]
