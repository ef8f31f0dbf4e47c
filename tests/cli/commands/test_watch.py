"""``nscl watch`` as a real process: it waits for folders, tells its address, ends with Ctrl-C."""

import http.client
import re
import signal
from pathlib import Path

import pytest

from nscl.results import RunDirectory
from tests.cli.calling import check_refused
from tests.reporting.making import make_run
from tests.runs import nscl


def test_what_is_not_there_yet_is_waited_for_and_then_served(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", tasks=1)
    process = nscl("watch", "runs/split*", "later", cwd=tmp_path)
    try:
        assert process.stdout
        assert process.stdout.readline().startswith("waiting for later, not there yet")
        run: RunDirectory = make_run(tmp_path / "later", tasks=1)
        line = process.stdout.readline()
        match = re.match(r"live report: http://(127\.0\.0\.1:\d+)/ \(Ctrl-C ends it\)", line)
        assert match, line
        connection = http.client.HTTPConnection(match[1], timeout=30)
        connection.request("GET", "/")
        assert run.name in connection.getresponse().read().decode()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, output.strip(), errors) == (0, "ended", "")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("args", "message"),
    [((), "no runs: name their folder"), (("empty", "--port", "70000"), "choose another --port")],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").mkdir()
    check_refused(("watch", *args), message, here, capsys)
