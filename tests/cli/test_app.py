"""The command line as a whole: quick to start, exit codes, one line for errors, completion."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from nscl.cli.app import COMMANDS, call
from nscl.training.process.interrupt import InterruptedRunError
from tests.cli.calling import QUICK, check_refused, is_one_line
from tests.runs import nscl


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


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("rum",), "Did you mean"),
        (("report", "runs", "--method.a", "10"), "report takes no --method.a: options of"),
    ],
)
def test_a_command_or_an_option_that_is_not_there_is_one_line(
    args: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(args, message, here, capsys)


def test_a_real_process_leaves_with_the_exit_code(tmp_path: Path) -> None:
    process = nscl("rum", cwd=tmp_path)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 2
    is_one_line(errors, "Did you mean")


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (InterruptedRunError("stopped", 143), 143, "nscl: stopped\n"),
        (KeyboardInterrupt(), 130, "nscl: interrupted\n"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_what_ends_a_command_decides_its_exit_code(
    problem: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise problem

    monkeypatch.setattr("nscl.cli.commands.list.wide_console", fail)
    assert call(["list", "models"]) == code
    assert capsys.readouterr().err == words


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


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == f"nscl {importlib.metadata.version('nscl')}\n"


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
    command: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = here / "link"
    link.symlink_to(here / "gone")
    assert call([*command, str(link)]) == 2
    message = f"{link} is a link to {here}/gone, which does not exist"
    is_one_line(capsys.readouterr().err, message)
    assert list(here.iterdir()) == [link]  # nothing was trained


def test_a_report_names_a_link_that_leads_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, link = tmp_path / "runs", tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    given = ("--method", "finetune", "--quiet", "--out", str(runs))
    assert call(["run", "split-digits-5", *QUICK, *given]) == 0
    assert call(["report", str(runs), "--out", str(link)]) == 2
    message = f"{link} is a link to {tmp_path}/gone, which does not exist"
    is_one_line(capsys.readouterr().err, message)
