"""Tables are as wide as the terminal; where there is none, no line is folded or cut."""

import pytest

from nscl.cli.console import wide_console


@pytest.mark.parametrize(("terminal", "lines"), [(False, 1), (True, 3)])
def test_long_lines_are_folded_on_terminals_only(
    terminal: bool,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if terminal else "0")
    wide_console().print("word " * 23 + "word")
    assert len(capsys.readouterr().out.splitlines()) == lines
