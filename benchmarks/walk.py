"""How many files of nscl one operation goes through: ``python -m benchmarks.walk``.

Three walks are traced with ``sys.setprofile`` and printed as Markdown tables:

* a steady ``optimizer.step()``: Adam on a small network, protected, its plan of updates made;
* a ``remember`` of one batch, as `Memory.adam_nscl` does it;
* ``nscl run split-digits-5 --method adam-nscl`` from the command line to its first step.

A *call* is the start of a named function of nscl. Lambdas, comprehensions, the resumption of a
generator, methods that ``dataclasses`` wrote and everything that runs while a module is imported
are not counted. A *hop* is a call into another file of nscl than the one it was called from; code
of other packages between the two is skipped. The first call of a walk comes from outside: no hop.

Only public names of nscl are used, so the counts of two commits can be compared.
"""

import inspect
import io
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import nscl

RUN = ("run", "split-digits-5", "--method", "adam-nscl", "--quiet")
_NSCL = Path(nscl.__file__).parent


class Walk:
    """The calls and hops between the files under ``root`` while `tracing` is on."""

    def __init__(self, root: Path = _NSCL) -> None:
        self._prefix = f"{root}{os.sep}"
        self.calls: Counter[str] = Counter()  # in the order of the first visit
        self.hops: Counter[str] = Counter()
        self._importing = 0
        self._starts: dict[CodeType, int] = {}

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Count what this thread does inside the block."""
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not self._is_inside(frame):
            return
        if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or of a class
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing and self._is_start(frame):
            self._count(frame)

    def _is_inside(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._prefix)

    def _is_start(self, frame: FrameType) -> bool:
        """Whether a named function starts; a generator that goes on does so further down."""
        code = frame.f_code
        first = self._starts.setdefault(code, frame.f_lasti)
        return frame.f_lasti == first and not code.co_name.startswith("<")

    def _count(self, frame: FrameType) -> None:
        file = frame.f_code.co_filename
        name = file.removeprefix(self._prefix)
        self.calls[name] += 1
        caller = frame.f_back
        while caller is not None and not self._is_inside(caller):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != file:
            self.hops[name] += 1


def summary(title: str, walk: Walk) -> str:
    """One line: files, hops and calls."""
    return f"{title}: {len(walk.calls)} files, {walk.hops.total()} hops, {walk.calls.total()} calls"


def table(title: str, walk: Walk) -> str:
    """One walk in Markdown: its files in the order of the first visit."""
    rows = [f"| `{file}` | {calls} | {walk.hops[file]} |" for file, calls in walk.calls.items()]
    head = [f"### {title}", "", "| File | Calls | Hops into it |", "|---|---:|---:|"]
    return "\n".join([*head, *rows, "", summary(title, walk), ""])


def step() -> Walk:
    """A protected step, after others that have made the plan."""
    model, batch = _network()
    memory = nscl.Memory.adam_nscl(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    memory.protect(optimizer)
    memory.remember([batch])
    for _ in range(3):
        walk = Walk()
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        with walk.tracing():
            optimizer.step()
    return walk


def remember() -> Walk:
    """The first task of a memory."""
    model, batch = _network()
    memory, walk = nscl.Memory.adam_nscl(model), Walk()
    with walk.tracing():
        memory.remember([batch])
    return walk


class _FirstStepError(BaseException):
    """Ends a run; no handler of ordinary errors may catch it."""


def run() -> Walk:
    """The command line, until the first step of any optimizer."""
    (script,) = entry_points(group="console_scripts", name="nscl")
    command, walk = script.load(), Walk()

    def stop(*_: object) -> None:
        sys.setprofile(None)  # clearing up afterwards is not part of the walk
        raise _FirstStepError

    hook = register_optimizer_step_pre_hook(stop)
    shown = io.StringIO()
    try:
        with (
            tempfile.TemporaryDirectory() as out,
            redirect_stdout(shown),
            redirect_stderr(shown),
            walk.tracing(),
        ):
            command([*RUN, "--out", out])
    except _FirstStepError:
        return walk
    except SystemExit as problem:
        raise RuntimeError(f"nscl left before its first step: {shown.getvalue()}") from problem
    finally:
        hook.remove()
    raise RuntimeError("nscl took no step")


WALKS: dict[str, Callable[[], Walk]] = {
    "A steady optimizer.step()": step,
    "remember": remember,
    "nscl run, to its first step": run,
}


def main() -> None:
    """Print the three tables, then the three summaries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the small network keeps no free directions
        walks = {title: walk() for title, walk in WALKS.items()}
    for title, walk in walks.items():
        print(table(title, walk))
    for title, walk in walks.items():
        print(summary(title, walk))


def _network() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.randn(16, 8)


if __name__ == "__main__":
    main()
