"""Calls of the command line, and what an error that the user can fix looks like."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from nscl.cli.app import call

#: A run of a second or two.
QUICK = ("--data.first", "2", "--optim.epochs", "1", "--threads", "1")
#: Many of them, two at a time.
TINY = (*QUICK, "--jobs", "2")


def is_one_line(errors: str, message: str) -> None:
    assert message in errors
    assert errors.startswith("nscl: ")
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    assert "validation error" not in errors


def check_refused(
    args: Sequence[str], message: str, folder: Path, capture: pytest.CaptureFixture[str]
) -> None:
    """Refused in one line, with exit code 2, before any run has a folder."""
    assert call(args) == 2
    is_one_line(capture.readouterr().err, message)
    assert not (folder / "runs").exists()
