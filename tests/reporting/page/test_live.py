"""``nscl report`` and ``nscl watch`` as real processes: one clear line, or a page that keeps up."""

import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nscl.reporting import serving
from nscl.reporting.page.live import ReportServer
from tests.reporting.making import make_run
from tests.runs import nscl


def get(address: str, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    runs = tmp_path / "runs"
    runs.mkdir()
    process = nscl("watch", str(runs), cwd=tmp_path)
    assert process.stdout
    line = process.stdout.readline()
    match = re.match(r"live report: http://(127\.0\.0\.1:\d+)/ \(Ctrl-C ends it\)", line)
    assert match, line
    yield process, match[1], runs
    process.kill()
    process.communicate()


def test_the_page_keeps_up_with_the_runs(
    watching: tuple[subprocess.Popen[str], str, Path],
) -> None:
    process, address, runs = watching
    status, page = get(address, "/")
    assert status == 200
    assert "No run has been found yet" in page
    _, before = get(address, "/version")
    assert f'<meta name="nscl-live" content="{before}">' in page
    run = make_run(runs, finished=False, tasks=2)
    _, after = get(address, "/version")
    assert after != before
    assert "2 tasks so far" in get(address, "/")[1]
    make_run(runs, "gem")
    assert run.name in get(address, "/")[1]
    assert get(address, "/etc/passwd")[0] == 404
    assert get(address, "/", host="evil.example")[0] == 403
    port = address.rsplit(":", 1)[1]
    second = nscl("watch", str(runs), "--port", port, cwd=runs)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 2
    assert errors.startswith(f"nscl: cannot serve on 127.0.0.1:{port}: Address already in use")
    assert errors.count("\n") == 1
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert output.strip() == "ended"
    with pytest.raises(OSError, match="refused"), socket.create_connection(address.split(":")):  # type: ignore[arg-type]
        pass


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start nscl; what a failing test leaves is ended."""
    with ExitStack() as left:

        def begin(*args: str) -> subprocess.Popen[str]:
            process = nscl(*args, cwd=tmp_path)
            left.callback(process.communicate)
            left.callback(process.kill)
            return process

        yield begin


def test_a_folder_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start("watch", "runs")
    assert process.stdout
    assert process.stdout.readline().startswith("waiting for runs, not there yet")
    make_run(tmp_path / "runs", tasks=1)
    assert process.stdout.readline().startswith("live report: http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output.strip(), errors) == (0, "ended", "")


def test_what_fits_a_pattern_is_kept_up_with(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    make_run(tmp_path / "runs", tasks=1)
    process = start("watch", "runs/split*", "later")
    assert process.stdout
    assert process.stdout.readline().startswith("waiting for later, not there yet")
    make_run(tmp_path / "later", tasks=1)
    address = process.stdout.readline().split("/")[2]
    _, before = get(address, "/version")
    make_run(tmp_path / "runs", seed=1, tasks=1)
    assert get(address, "/version")[1] != before
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output.strip(), errors) == (0, "ended", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("report", "nowhere"), "nowhere does not exist"),
        (("report", "empty"), "there is no run in empty"),
        (("report",), "no runs: name their folder"),
        (("watch",), "no runs: name their folder"),
        (("watch", "empty", "--port", "70000"), "choose another --port"),
    ],
)
def test_what_the_user_can_fix(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    process = nscl(*args, cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.startswith("nscl: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_report_says_what_it_left_out_and_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", tasks=1)
    bad = make_run(tmp_path / "runs", seed=1, tasks=1)
    bad.result_path.write_text("{")
    process = nscl("report", "runs", cwd=tmp_path)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert f"skipped runs/{bad.name}" in errors
    assert "left out of split-digits-5, quick: old-losses (losses of old tasks" in output
    assert "1 run, " in output
    files = json.loads((tmp_path / "report" / "manifest.json").read_text())["files"]
    assert "report.html" in files


def test_a_reader_who_leaves_early_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A tab is closed while its page is made: no traceback on the screen."""
    asked, left = threading.Event(), threading.Event()

    def page(server: ReportServer) -> str:
        asked.set()
        assert left.wait(30)
        return "page" * 100_000

    monkeypatch.setattr(ReportServer, "page", page)
    monkeypatch.setattr(ReportServer, "daemon_threads", False)  # so that they are waited for
    with serving([tmp_path]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        with socket.create_connection(server.server_address[:2]) as reader:  # type: ignore[arg-type]
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reader.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert asked.wait(30)
        left.set()
        server.shutdown()
        thread.join()
    assert capfd.readouterr().err == ""
