"""The live page keeps up with the runs, answers this machine only, and survives its readers."""

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nscl.reporting import ReportError, serving
from nscl.reporting.page.live import ReportServer
from tests.reporting.making import make_run


def get(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@contextmanager
def answering(server: ReportServer) -> Iterator[int]:
    """The port of a server that answers in a thread of its own."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()


def test_the_page_keeps_up_with_the_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with serving([runs]) as server, answering(server) as port:
        status, page = get(port, "/")
        assert status == 200
        assert "No run has been found yet" in page
        _, before = get(port, "/version")
        assert f'<meta name="nscl-live" content="{before}">' in page
        run = make_run(runs, finished=False, tasks=2)
        _, after = get(port, "/version")
        assert after != before
        assert "2 tasks so far" in get(port, "/")[1]
        make_run(runs, "gem")
        assert run.name in get(port, "/")[1]


def test_other_paths_other_hosts_and_a_port_in_use_are_refused(tmp_path: Path) -> None:
    with serving([tmp_path]) as server, answering(server) as port:
        assert get(port, "/etc/passwd")[0] == 404
        assert get(port, "/", host="evil.example")[0] == 403
        message = f"cannot serve on 127.0.0.1:{port}: Address already in use"
        with pytest.raises(ReportError, match=message), serving([tmp_path], port=port):
            pytest.fail("two servers on one port")
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port)):
        pytest.fail("it still answers")


def test_runs_that_fit_a_pattern_later_are_new_to_the_page(tmp_path: Path) -> None:
    make_run(tmp_path, tasks=1)
    with serving([tmp_path / "split*"]) as server, answering(server) as port:
        _, before = get(port, "/version")
        make_run(tmp_path, seed=1, tasks=1)
        assert get(port, "/version")[1] != before


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
    with serving([tmp_path]) as server, answering(server) as port:
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reader.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert asked.wait(30)
        left.set()
    assert capfd.readouterr().err == ""
