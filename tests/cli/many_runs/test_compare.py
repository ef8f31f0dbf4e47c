"""``nscl compare``: real processes, kills, waiting for others, damaged files, exit codes."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nscl.cli.app import call
from nscl.engines.job import Job
from nscl.results import Result, RunDirectory, RunLock, find_runs
from nscl.training.config.build import build_config
from nscl.training.config.layers import merge
from nscl.training.experiment import run
from tests.cli.calling import TINY, check_refused
from tests.runs import nscl

BROKEN = """
from nscl.methods.base import Method


class Broken(Method):
    def start_task(self, task):
        raise ValueError("no good")
"""


def until(truth: Callable[[], bool], *, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not truth():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_a_failing_method_stops_no_other_and_finished_runs_are_skipped(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "own_broken.py").write_text(BROKEN)
    methods = "finetune,own_broken:Broken"
    command = ("compare", "split-digits-5", "--seeds", "1", *TINY, "--methods")
    assert call([*command, methods, "--json"]) == 2
    output, errors = capfd.readouterr()
    records = [json.loads(line) for line in output.splitlines()]
    ends = {r["run"].split("-0-")[0]: r for r in records if r["kind"] == "end"}
    assert ends["split-digits-5-finetune"]["state"] == "done"
    failed = ends["split-digits-5-own_broken-Broken"]
    assert (failed["state"], failed["error"]) == ("failed", "ValueError: no good")
    assert "Traceback" in Path(failed["log"]).read_text()
    assert "own_broken:Broken seed 0 failed: ValueError: no good" in errors
    assert "Traceback" not in errors
    (row,) = records[-1]["rows"]
    assert row["label"] == "finetune"
    (done,) = [found for found in find_runs([here / "runs"]).runs if found.is_finished]
    assert row["acc"]["mean"] == done.result().acc
    before = done.result_path.stat().st_mtime_ns
    assert call([*command, "finetune"]) == 0
    output = capfd.readouterr().out
    assert "1 run: 1 finished" in output
    assert "starting" not in output
    assert f"{done.result().acc:.2f}" in output
    assert done.result_path.stat().st_mtime_ns == before


def test_nothing_is_lost_by_kills_and_interrupts(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL of a child, Ctrl-C, SIGKILL of the parent; then the same result as undisturbed."""
    settings = {"data": {"first": 2}, "optim": {"epochs": 40}, "threads": 1, "method": "finetune"}
    command = ("compare", "split-digits-5", "--methods", "finetune", "--seeds", "2", "--jobs", "2",
               "--data.first", "2", "--optim.epochs", "40", "--threads", "1")  # fmt: skip
    configs = [
        build_config("split-digits-5", {**settings, "seed": s, "out": here / "undisturbed"})
        for s in (0, 1)
    ]
    truth = run(configs[0])
    runs = [RunDirectory(here / "runs" / Job(config, "").name) for config in configs]

    def lines(directory: RunDirectory) -> int:
        path = directory.metrics_path
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def halted() -> list[int]:
        """Both processes, stopped in the middle: one must not end before the other has begun."""
        processes = []
        for directory, before in zip(runs, begun, strict=True):
            until(lambda d=directory, b=before: lines(d) >= b + 2)
            processes.append(json.loads(directory.lock_path.read_text())["pid"])
            os.kill(processes[-1], signal.SIGSTOP)
        return processes

    begun = [0, 0]
    parent = nscl(*command, cwd=here)
    first, second = halted()
    os.kill(first, signal.SIGKILL)
    time.sleep(0.3)
    parent.send_signal(signal.SIGINT)
    time.sleep(0.3)
    os.kill(second, signal.SIGCONT)
    output, errors = parent.communicate(timeout=240)
    assert parent.returncode == 130, errors
    assert "killed finetune seed 0: killed by SIGKILL" in output
    assert "Continue with the same command" in errors
    assert gone(second)
    assert not any(r.is_finished for r in runs)

    begun = [lines(directory) for directory in runs]
    parent = nscl(*command, cwd=here)
    children = halted()
    parent.kill()
    parent.communicate(timeout=240)
    for child in children:
        os.kill(child, signal.SIGCONT)
    until(lambda: all(gone(child) for child in children))
    assert not any(r.is_finished for r in runs)

    assert call(command) == 0
    assert "2 to be continued" in capfd.readouterr().out
    assert runs[1].is_finished
    assert runs[0].result().accuracy == truth.accuracy


def test_a_run_of_another_process_is_waited_for(here: Path) -> None:
    """Its lock is really held; meanwhile the other run is trained, and then this one."""
    given = {"data": {"first": 2}, "optim": {"epochs": 1}, "out": here / "runs"}
    held, free = (
        Job(build_config("split-digits-5", {**given, "method": method}), method)
        for method in ("finetune", "adam-nscl")
    )
    held.directory.path.mkdir(parents=True)
    command = ("compare", "split-digits-5", "--methods", "finetune,adam-nscl", "--seeds", "1")
    with RunLock(held.directory.lock_path):
        process = nscl(*command, *TINY[:-2], cwd=here)
        until(lambda: free.directory.is_finished)
        assert process.poll() is None
    output, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, ""), output
    assert "finetune seed 0 is waiting for another process: " in output
    assert f"is being worked on by process {os.getpid()} " in output
    assert [row.split()[0] for row in output.splitlines()[-2:]] == ["finetune", "adam-nscl"]


def trained(out: Path, **given: Any) -> Result:
    """A run as TINY makes it, in this process: quicker than one of its own."""
    tiny = {"data": {"first": 2}, "optim": {"epochs": 1}, "threads": 1, "method": "finetune"}
    return run(build_config("split-digits-5", merge({**tiny, "out": out}, given)))


def test_damaged_files_of_finished_runs_end_no_plan(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed in range(2):
        trained(here / "runs", seed=seed)
    command = ["compare", "split-digits-5", *TINY, "--methods", "finetune", "--seeds"]
    logs, result = sorted(find_runs([here / "runs"]).runs, key=lambda found: found.name)
    with logs.metrics_path.open("a") as log:
        log.write("garbage\n")
    result.result_path.write_bytes(result.result_path.read_bytes()[:100])
    capfd.readouterr()
    assert call([*command, "3"]) == 2
    output, errors = capfd.readouterr()
    assert "starting finetune seed 2" in output
    assert output.count("starting finetune") == 1
    row = output.splitlines()[-1].split()
    assert (row[0], row[-1]) == ("finetune", "2")
    assert "finetune seed 2" in output
    assert "result.json is truncated or not JSON" in errors
    assert "; move its folder away to run it again\n" in errors


def test_a_piped_table_is_not_cut(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = [f"{'long ' * 35}{end}" for end in ("a", "b")]
    rows = [f'[[variants]]\nname = "{name}"\nmethod = "finetune"\n' for name in names]
    rows[1] += "settings.optim.lr = 0.02\n"
    (here / "plan.toml").write_text('benchmark = "split-digits-5"\nseeds = 1\n' + "".join(rows))
    trained(here / "runs")
    trained(here / "runs", optim={"lr": 0.02})
    assert call(["compare", "--plan", "plan.toml", *TINY]) == 0
    *_, first, second = capfd.readouterr().out.splitlines()
    for name, line in zip(names, (first, second), strict=True):
        assert line.startswith(f"{name} ")
        assert len(line.removeprefix(name).split()) == 6


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "no benchmark: name one"),
        (("split-digit-5",), "did you mean 'split-digits-5'?"),
        (("split-digits-5", "--methods", "finetun"), "did you mean 'finetune'?"),
        (("split-digits-5", "--methods", ","), "no method is named"),
        (("split-digits-5", "--metods", "all"), "Did you mean --methods?"),
        (("split-digits-5", "--method.a", "10"), "compare takes no --method.a, it"),
        (("split-digits-5", "--method.a=10"), "nscl sweep --set method.a="),
        (("split-digits-5", "--seeds", "none"), "--seeds is a number"),
        (("split-digits-5", "--jobs", "0"), "at least one run"),
        (("split-digits-5", "--jobs", "2.5"), "--jobs: must be a whole number"),
        (("split-digits-5", "--model.name", "mpl"), "did you mean 'mlp'?"),
        (("split-digits-5", "--model.name", "none:net"), "cannot import 'none'"),
        (("split-digits-5", "--address", "ray://x:1"), "add --engine ray"),
        (("--plan", "nowhere.toml"), "there is no file nowhere.toml"),
        (("--plan", "."), ". is a folder: name the TOML file"),
        (("split-digits-5", "--preset", "nah"), "option --preset: must be 'paper'"),
        (("split-digits-5", "--threads", "0"), "or equal to 1, not '0'\n"),
        (("split-cifar100-10", "--data-dir", "empty"), "nscl data fetch"),
    ],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...], message: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_refused(("compare", *args), message, here, capfd)
