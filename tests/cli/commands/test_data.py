"""``nscl data``: the state of data sets, exit codes of a check, and a fetch from a real server."""

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nscl.cli.app import call
from nscl.data.disk.canonical import DATASETS, Download, Form
from tests.cli.calling import check_refused

CONTENT = b"a small archive" * 100


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CIFAR-10 as a small file on a server of this machine."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "small.tar.gz").write_bytes(CONTENT)
    serve = partial(Silent, directory=str(tmp_path / "served"))
    md5 = hashlib.md5(CONTENT).hexdigest()
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/small.tar.gz"
        small = dataclasses.replace(
            DATASETS["cifar10"],
            forms=(Form("small.tar.gz", md5),),
            downloads=(Download(url, "small.tar.gz", md5, len(CONTENT)),),
        )
        monkeypatch.setitem(DATASETS, "cifar10", small)
        yield
        server.shutdown()
        thread.join()


def rows(output: str) -> dict[str, str]:
    return {line.split()[0]: " ".join(line.split()[1:]) for line in output.splitlines()}


def test_every_data_set_is_listed_with_its_state(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call(["data", "list"]) == 0
    found = rows(capsys.readouterr().out)
    assert found["split-digits-5"] == "scikit-learn's digits embedded"
    assert found["split-cifar100-10"] == "CIFAR-100 missing"
    assert "folder:PATH" not in found


def test_what_is_fetched_is_checked_and_damage_changes_the_exit_code(
    published: None, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["data", "fetch", "split-cifar10-5", "--data-dir", "mine"]) == 0
    assert "split-cifar10-5: verified in mine/small.tar.gz" in capsys.readouterr().out
    assert (here / "mine" / "small.tar.gz").read_bytes() == CONTENT
    check = ["data", "check", "split-cifar10-5", "--data-dir", "mine"]
    assert call(check) == 0
    (here / "mine" / "small.tar.gz").write_bytes(CONTENT[:-1])
    assert call(check) == 2
    assert rows(capsys.readouterr().out)["split-cifar10-5"].startswith("CIFAR-10 corrupt")
    assert call(["data", "list", *check[2:]]) == 0


def test_nothing_is_fetched_without_a_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(("data", "fetch"), "nothing to fetch: name it", here, capsys)
