"""``nscl report``: what was written, what was left out and why, and what there is no run in."""

import json
from pathlib import Path

import pytest

from nscl.cli.app import call
from tests.cli.calling import check_refused
from tests.reporting.making import make_run


def test_what_was_left_out_and_passed_over_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # and the user's cache, which has the page's scripts
    make_run(tmp_path / "runs", tasks=1)
    bad = make_run(tmp_path / "runs", seed=1, tasks=1)
    bad.result_path.write_text("{")
    assert call(["report", "runs", "--figures", "svg"]) == 0
    output, errors = capsys.readouterr()
    assert f"nscl: skipped runs/{bad.name}: " in errors
    assert "left out of split-digits-5, quick: old-losses (losses of old tasks" in output
    files = json.loads((tmp_path / "report" / "manifest.json").read_text())["files"]
    assert output.splitlines()[-1] == f"1 run, {len(files)} files: report/report.html"
    assert call(["report", "runs", "--figures", "svg"]) == 0
    kept = sum(name.endswith(".svg") for name in files)
    assert f" files ({kept} of figures unchanged): " in capsys.readouterr().out
    assert call(["report", "runs", "--quiet", "--figures", "none"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nowhere",), "nowhere does not exist"),
        (("empty",), "there is no run in empty"),
        ((), "no runs: name their folder"),
    ],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").mkdir()
    check_refused(("report", *args), message, here, capsys)
