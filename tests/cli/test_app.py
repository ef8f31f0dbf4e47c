"""The command line as a person meets it: exit codes, one clear line, real processes."""

import importlib.metadata
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from nscl.cli.app import COMMANDS, call
from nscl.methods import METHODS
from nscl.results import config_hash
from tests.runs import nscl

QUICK = ("--data.first", "2", "--optim.epochs", "1", "--threads", "1")


def outcome(*args: str, cwd: Path) -> tuple[int, str, str]:
    process = nscl(*args, cwd=cwd)
    output, errors = process.communicate(timeout=240)
    return process.returncode, output, errors


def one_line(errors: str, message: str) -> None:
    assert message in errors
    assert errors.startswith("nscl: ")
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    assert "validation error" not in errors


def test_help_is_quick_and_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from nscl.cli.app import call\n"
        "try: call(['--help'])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    # Its own time, not the clock's: other work beside it must not make it fail.
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 1.0


def test_resume_begins_no_other_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder renamed, or of a version with other options, is reported and not run again."""
    assert call(["run", "split-digits-5", *QUICK, "--quiet", "--out", str(tmp_path)]) == 0
    (run,) = tmp_path.iterdir()
    kept = (run / "config.json").read_text()
    old = json.loads(kept)
    old["config"]["options"].pop("a")
    old["hash"] = config_hash(old["config"])
    (run / "config.json").write_text(json.dumps(old))
    assert call(["resume", str(run)]) == 2
    assert "of another version of nscl, for which options.a meant" in capsys.readouterr().err
    (run / "config.json").write_text(kept)
    moved = run.rename(tmp_path / "mine")
    assert call(["resume", str(moved)]) == 2
    assert f"rename the folder to {run.name}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [moved]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "split-digits-5", "--method", "adm-nscl"), "did you mean 'adam-nscl'?"),
        (("run", "split-digit-5"), "did you mean 'split-digits-5'?"),
        (("run", "split-digits-5", "--optim.lrr", "1"), "Did you mean --optim.lr?"),
        (("run", "split-digits-5", "--method.b", "1"), "there is no option 'method.b'"),
        (
            ("run", "split-digits-5", "--method.stats-augment", "so"),
            "'method.stats_augment': must be true or false, not 'so'",
        ),
        (
            ("run", "split-digits-5", "--method.stats-augment=a-b"),
            "must be true or false, not 'a-b'",
        ),
        (("run", "split-digits-5", "--preset", "nah"), "option --preset: must be 'paper', "),
        (
            ("run", "split-digits-5", "--optim.lr", "abc"),
            "option --optim.lr: must be a number, not",
        ),
        (
            ("run", "split-digits-5", "--optim.milestones", "x"),
            "option --optim.milestones: must be",
        ),
        (("run", "split-digits-5", "--lr=inf"), "option --optim.lr: must be a finite number, not"),
        (("run", "split-digits-5", "--method.a=inf"), "'method.a': must be a finite number, not"),
        (("run", "split-digits-5", "--eval-each-epoch=so"), "must be true or false, not 'so'"),
        (("run", "split-digits-5", "--lr", "1", "--optim.lr", "2"), "specified multiple times"),
        (("run", "split-digits-5", "--bn-stats", "x"), "'per_task', not 'x'\n"),
        (("run", "split-digits-5", "--device", "tpu"), "option --device: device must be auto"),
        (("run", "split-digits-5", "--method", "finetune", "--method.a", "1"), "has no options"),
        (("run", "split-digits-5", "--data.tasks", "3"), "choose a number of tasks from 1, 2, 5"),
        (("run", "split-digits-5", "--optim.lr", "1e30"), "lower the learning rate"),
        (("run", "split-cifar100-10", "--data-dir", "empty"), "nscl data fetch split-cifar100-10"),
        (("run", "folder:none", "--data.tasks", "2"), "none"),
        (("run", "text:none", "--data.tasks", "2"), "none is not a folder with train.csv"),
        (("run", "clinc150-10", "--data-dir", "empty"), "nscl data fetch clinc150-10"),
        (("run", "clinc150-10", "--data.tokenizer", "hf:none"), "none is not a folder; name a"),
        (
            ("run", "clinc150-10", "--method", "gd-wild"),
            "needs pictures, and clinc150-10 has texts",
        ),
        (("run", "split-digits-5", "--model.name", "resnet81"), "resnet18"),
        (("run", "split-digits-5", "--device", "cuda"), "--device auto"),
        (("show", "nowhere"), "nowhere is not a run"),
        (("resume", "nowhere"), "nowhere is not a run"),
        (("rum",), "Did you mean"),
    ],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("NSCL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert call(args) == 2
    one_line(capsys.readouterr().err, message)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "split-digits-5", "--method", "adm-nscl"), "did you mean 'adam-nscl'?"),
        (("rum",), "Did you mean"),
    ],
)
def test_a_real_process_says_it_alike(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    code, _, errors = outcome(*args, cwd=tmp_path)
    assert code == 2
    one_line(errors, message)


def test_run_show_json_and_own_model(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def factory(image_shape):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU())\n"
    )
    code, output, errors = outcome(
        "run", "split-digits-5", *QUICK, "--json", "--model.name", "mine:factory", cwd=tmp_path
    )
    assert code == 0, errors
    records = [json.loads(line) for line in output.splitlines()]
    assert [r["kind"] for r in records] == ["start", "epoch", "task", "epoch", "task", "result"]
    assert records[-1]["config"]["model"]["name"] == "mine:factory"
    code, output, errors = outcome("show", records[0]["run"], cwd=tmp_path)
    assert code == 0, errors
    assert f"ACC {records[-1]['acc']:.2f} %" in output
    assert "spectra of what is held after task" in output


def test_settings_that_are_typed_often_have_short_names(tmp_path: Path) -> None:
    shared = ("--data.first", "1", "--threads", "1", "--quiet", "--method", "finetune")
    short = ("--tasks", "5", "--order", "random", "--epochs", "1", "--lr=0.02", "--batch-size",
             "8", "--model", "convnet", "--width", "4")  # fmt: skip
    full = ("--data.tasks", "5", "--data.order", "random", "--optim.epochs", "1",
            "--optim.lr", "0.02", "--optim.batch-size", "8", "--model.name=convnet",
            "--model.width", "4")  # fmt: skip
    assert call(["run", "split-digits-5", *short, *shared, "--out", str(tmp_path)]) == 0
    (run,) = tmp_path.iterdir()
    assert call(["run", "split-digits-5", *full, *shared, "--out", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == [run]


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "tune"])
def test_help_shows_both_names(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--optim.lr --lr" in text
    assert "--data.tasks --tasks" in text
    assert "--model NAME" in text


@pytest.mark.parametrize("what", ["methods", "benchmarks", "models", "presets", "scenarios"])
def test_lists(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", what]) == 0
    output = capsys.readouterr().out
    expected = {"methods": "adam-nscl", "benchmarks": "split-digits-5", "models": "resnet18",
                "presets": "official",
                "scenarios": "one growing head over all classes seen so far"}  # fmt: skip
    assert expected[what] in output


def test_the_list_of_methods_says_what_each_stores_needs_and_whose_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # of no terminal: a line for each method all the same
    assert call(["list", "methods"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    names = ["method", "stores", "needs", "what it does", "paper"]
    places = [head.index(name) for name in names]
    assert places == sorted(places)
    cells = {}
    for line in lines:
        ends = [*places[1:], len(line)]
        cells[line.split()[0]] = [line[a:b].strip() for a, b in zip(places, ends, strict=True)]
    assert list(cells) == list(METHODS)
    for info in METHODS.values():
        found = [info.name, info.stores, info.needs, info.description, info.paper]
        assert cells[info.name] == found
        assert all(found)
    assert cells["gem"][1:3] == ["data", "labels"]
    assert cells["gd-wild"][2] == "labels, external images"
    assert "CVPR 2021" in cells["adam-nscl"][-1]


def test_doctor_and_data(tmp_path: Path) -> None:
    code, output, errors = outcome("doctor", cwd=tmp_path)
    assert code == 0, errors
    assert "torch" in output
    assert "split-digits-5" in output
    code, output, errors = outcome("data", "list", cwd=tmp_path)
    assert code == 0, errors
    assert "embedded" in output


def test_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"]["torch"].startswith("2.")
    assert found["data"]["split-digits-5"] == {"ready": True, "state": "embedded"}
    assert found["nscl"]
    assert "cpu" in found["devices"]


def test_doctor_looks_for_all_that_the_laboratory_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    assert call(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["packages"]
    assert set(found) == {re.split(r"[^\w-]", text)[0] for text in needed}
    assert all(found.values())


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == f"nscl {importlib.metadata.version('nscl')}\n"


@pytest.mark.parametrize(
    ("shell", "place", "beginning"),
    [
        ("bash", ".local/share/bash-completion/completions/nscl", "#"),
        ("zsh", ".zsh/completions/_cyclopts_nscl", "#compdef nscl"),
        ("fish", ".config/fish/completions/nscl.fish", "#"),
    ],
)
def test_completion_of_a_shell_that_is_named(
    shell: str, place: str, beginning: str, tmp_path: Path
) -> None:
    """The shell that the command was started from is bash, and does not count."""
    command = f"{sys.executable} -m nscl --install-completion --shell {shell}; exit $?"
    process = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash", "BASH_VERSION": "5.2"},
        capture_output=True,
        text=True,
        check=True,
    )
    script = (tmp_path / place).read_text()
    assert script.startswith(beginning)
    assert all(name in script for name in COMMANDS)
    assert place in process.stdout.replace("\n", "")


def test_shell_completion_is_installed_where_the_shell_looks(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "nscl", "--install-completion"],
        env={**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    (script,) = tmp_path.rglob("completions/nscl")
    assert "compare" in script.read_text()
    assert str(script) in process.stdout.replace("\n", "")


@pytest.mark.parametrize(
    "command",
    [
        ("run", "split-digits-5", *QUICK, "--out"),
        ("compare", "split-digits-5", "--methods", "finetune", "--seeds", "1", *QUICK, "--out"),
        ("sweep", "split-digits-5", "--set", "lr=0.1", "--seeds", "1", *QUICK, "--out"),
        ("tune", "ewc", "split-digits-5", *QUICK, "--out"),
        ("tune", "ewc", "split-digits-5", *QUICK, "--out", "records", "--runs"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_a_link_that_leads_nowhere_is_named(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    assert call([*command, str(link)]) == 2
    one_line(capsys.readouterr().err, f"{link} is a link to {tmp_path}/gone, which does not exist")
    assert list(tmp_path.iterdir()) == [link]  # nothing was trained


def test_a_report_names_a_link_that_leads_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, link = tmp_path / "runs", tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    given = ("--method", "finetune", "--quiet", "--out", str(runs))
    assert call(["run", "split-digits-5", *QUICK, *given]) == 0
    assert call(["report", str(runs), "--out", str(link)]) == 2
    one_line(capsys.readouterr().err, f"{link} is a link to {tmp_path}/gone, which does not exist")


def test_doctor_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nscl.cli.commands.doctor._version", lambda name: "")
    assert call(["doctor"]) == 0
    assert "missing: pip install 'nscl[lab]'" in capsys.readouterr().out


def test_a_terminal_gets_a_live_picture(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nscl", "run", "split-digits-5", *QUICK],
        cwd=tmp_path,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    assert process.wait(60) == 0
    text = seen.decode(errors="replace")
    assert "all tasks" in text
    assert "accuracy on each task" in text
    assert "ACC" in text
