"""compare, sweep and tune as a person meets them: real processes, kills, exit codes."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nscl.cli.app import call
from nscl.engines.job import Job
from nscl.engines.tuning.tuned_file import Tuned
from nscl.results import Result, RunDirectory, RunLock, find_runs
from nscl.training.config import tuned_values
from nscl.training.config.build import build_config
from nscl.training.config.layers import merge
from nscl.training.experiment import run
from tests.runs import nscl

TINY = ("--data.first", "2", "--optim.epochs", "1", "--threads", "1", "--jobs", "2")
BROKEN = """
from nscl.methods.base import Method


class Broken(Method):
    def start_task(self, task):
        raise ValueError("no good")
"""
PLAIN = """
from nscl.methods.base import Method


class Plain(Method):
    tuning = {"optim.lr": [0.1, 0.2]}
"""
FOLDERS = """
benchmark = "split-digits-5"
methods = "finetune"
seeds = 1
[settings]
out = "elsewhere"
data_dir = "pictures"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


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


def test_a_plan_with_a_sweep(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "plan.toml").write_text(
        'description = "two strengths"\n'
        'benchmark = "split-digits-5"\nmethods = "adam-nscl"\nseeds = 1\n'
        "[settings]\ndata.first = 1\noptim.epochs = 1\n"
        "[sweep]\nmethod.a = [10, 1000]\n"
        '[expected."adam-nscl a=10"]\nacc = 90\n'
    )
    assert call(["sweep", "--plan", "plan.toml", "--jobs", "2", "--method.norms", "freeze"]) == 0
    output = capfd.readouterr().out
    assert output.startswith("two strengths\n")
    assert "adam-nscl a=1000" in output
    assert "ACC 90" in output
    options = [found.config()["options"] for found in find_runs([here / "runs"]).runs]
    assert sorted(o["a"] for o in options) == [10, 1000]
    assert {o["norms"] for o in options} == {"freeze"}


def test_tune_takes_the_best_keeps_the_record_and_adopts(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_values, "FOLDER", here / "adopted")
    tune = ("tune", "adam-nscl", "split-digits-5", "--trials", "2", *TINY)
    assert call([*tune, "--adopt"]) == 0
    record = here / "experiments/tuned/split-digits-5-quick/adam-nscl.json"
    tuned = Tuned.read(record)
    results = {found.name: found.result() for found in find_runs([here / "runs/tuning"]).runs}
    assert {trial.run for trial in tuned.trials} == set(results)
    assert [trial.point["a"] for trial in tuned.trials] == [3.0, 300.0]
    assert len({result.acc for result in results.values()}) == 2
    best = max(results.values(), key=lambda r: (r.acc, r.bwt))
    strength = tuned.settings["options"]["a"]
    assert strength == best.config["options"]["a"]
    assert best.config["data"]["order"] == "random"
    adopted = json.loads((here / "adopted/split-digits-5.json").read_text())["quick"]["adam-nscl"]
    assert adopted["settings"] == tuned.settings
    assert adopted["trials"] == "experiments/tuned/split-digits-5-quick/adam-nscl.json"
    config = build_config("split-digits-5", {"method": "adam-nscl"})
    assert config.options["a"] == strength
    before = record.read_bytes()
    capfd.readouterr()
    assert call(tune) == 0
    assert "all trials are on record" in capfd.readouterr().out
    assert record.read_bytes() == before
    assert call([*tune, "--optim.lr", "0.5"]) == 2
    assert "--force" in capfd.readouterr().err
    tuned_values._read.cache_clear()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("compare",), "no benchmark: name one"),
        (("compare", "split-digit-5"), "did you mean 'split-digits-5'?"),
        (("compare", "split-digits-5", "--methods", "finetun"), "did you mean 'finetune'?"),
        (("compare", "split-digits-5", "--methods", ","), "no method is named"),
        (("compare", "split-digits-5", "--metods", "all"), "Did you mean --methods?"),
        (("compare", "split-digits-5", "--method.a", "10"), "compare takes no --method.a, it"),
        (("compare", "split-digits-5", "--method.a=10"), "nscl sweep --set method.a="),
        (("report", "runs", "--method.a", "10"), "report takes no --method.a: options of"),
        (("compare", "split-digits-5", "--seeds", "none"), "--seeds is a number"),
        (("compare", "split-digits-5", "--jobs", "0"), "at least one run"),
        (("compare", "split-digits-5", "--jobs", "2.5"), "--jobs: must be a whole number"),
        (("compare", "split-digits-5", "--model.name", "mpl"), "did you mean 'mlp'?"),
        (("compare", "split-digits-5", "--model.name", "none:net"), "cannot import 'none'"),
        (("compare", "split-digits-5", "--address", "ray://x:1"), "add --engine ray"),
        (("compare", "--plan", "nowhere.toml"), "there is no file nowhere.toml"),
        (("compare", "--plan", "."), ". is a folder: name the TOML file"),
        (("compare", "split-digits-5", "--preset", "nah"), "option --preset: must be 'paper'"),
        (("compare", "split-digits-5", "--threads", "0"), "or equal to 1, not '0'\n"),
        (("compare", "split-cifar100-10", "--data-dir", "empty"), "nscl data fetch"),
        (("sweep", "split-digits-5"), "nothing to vary: give --set"),
        (("sweep", "split-digits-5", "--set", "method.b=1"), "there is no option 'method.b'"),
        (("sweep", "split-digits-5", "--set", "optim.lrr=1"), "did you mean 'optim.lr'?"),
        (("sweep", "split-digits-5", "--set", "seed=1,2"), "use --seeds"),
        (("tune", "finetune", "split-digits-5"), "there is nothing to tune"),
        (("tune", "gpmm", "split-digits-5"), "did you mean 'gpm'?"),
        (("tune", "gpm", "split-digits-5", "--trials", "0"), "at least one"),
        (("tune", "gpm", "split-digits-5", "--trials", "1.5"), "a whole number, not '1.5'"),
        (("tune", "gpm", "split-digits-5", "--data.order", "natural"), "--data.order-seed"),
        (
            ("tune", "adam-nscl", "split-digits-5", "--method.rule", "tolerance"),
            "no strength to tune",
        ),
        (("tune", "owm", "split-digits-5", "--method.mode", "online", "--adopt"), "--adopt goes"),
        (("tune", "gpm", "split-digits-5", "--preset", "paper", "--adopt"), "as published"),
        (("tune", "", "split-digits-5"), "no method is named: use all"),
    ],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...],
    message: str,
    here: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NSCL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here))
    assert call(args) == 2
    errors = capfd.readouterr().err
    assert message in errors
    assert errors.startswith("nscl: ")
    assert errors.count("\n") == 1
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "split-digits-5", "--methods", "own_plain:Plain"),
        ("sweep", "split-digits-5", "--method", "own_plain:Plain", "--set", "optim.lr=0.1"),
        ("tune", "own_plain:Plain", "split-digits-5"),
    ],
)
def test_a_method_of_ones_own_is_found_in_the_folder_one_works_in(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The installed command has not this folder on its path, as python -m nscl has."""
    (tmp_path / "own_plain.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, "own_plain", raising=False)
    assert call([*command, "--jobs", "0"]) == 2
    assert "--jobs 0: at least one run" in capfd.readouterr().err


def test_a_plan_says_folders_that_the_command_line_leaves_open(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where data are looked for, and where runs go."""
    places: list[Path | None] = []

    def run_all(jobs: list[Job], *_: object, **__: object) -> int:
        places.append(jobs[0].config.out)
        return 0

    monkeypatch.setattr(
        "nscl.cli.many_runs.run_many.check_data", lambda _, place: places.append(place)
    )
    monkeypatch.setattr("nscl.cli.many_runs.run_many.run_all", run_all)
    (here / "plan.toml").write_text(FOLDERS)
    command = ("compare", "--plan", "plan.toml")
    assert call(command) == call([*command, "--out", "there", "--data-dir", "mine"]) == 0
    assert places == [Path("pictures"), Path("elsewhere"), Path("mine"), Path("there")]
