"""Downloads from a real server on this machine: honest, breaking off, without Range, lying."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nscl.data.disk.download import download
from nscl.data.errors import FetchError

if TYPE_CHECKING:
    from conftest import Server

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def target(tmp_path: Path, server: "Server") -> Path:
    server.files["data.bin"] = CONTENT
    return tmp_path / "deep" / "data.bin"


def get(server: "Server", target: Path, **options: object) -> list[tuple[str, int, int | None]]:
    calls: list[tuple[str, int, int | None]] = []
    download(
        f"{server.url}/data.bin",
        target,
        checksum=MD5,
        progress=lambda *call: calls.append(call),
        pause=0,
        **options,  # type: ignore[arg-type]
    )
    return calls


def nothing_but(target: Path) -> bool:
    return target.read_bytes() == CONTENT and list(target.parent.iterdir()) == [target]


def test_a_whole_download_reports_its_progress(server: "Server", target: Path) -> None:
    calls = get(server, target)
    assert nothing_but(target)
    done = [call[1] for call in calls]
    assert {call[0] for call in calls} == {"data.bin"}
    assert {call[2] for call in calls} == {len(CONTENT)}
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, len(CONTENT))
    assert len(done) > 3


def test_a_server_that_breaks_off_is_continued(server: "Server", target: Path) -> None:
    server.breaks, server.break_after = 3, 300_000
    get(server, target)
    assert nothing_but(target)
    assert server.ranges == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_what_arrived_is_kept_for_the_next_call(server: "Server", target: Path) -> None:
    server.breaks, server.break_after = 2, 300_000
    with pytest.raises(FetchError, match=r"broke off after 600,000 of .* the same command cont"):
        get(server, target, attempts=2)
    assert not target.exists()
    calls = get(server, target)
    assert server.ranges[-1] == "bytes=600000-"
    assert calls[0][1] == 600_000
    assert nothing_but(target)


def test_a_server_without_range_is_read_again_from_the_start(
    server: "Server", target: Path
) -> None:
    server.knows_range = False
    server.breaks, server.break_after = 1, 300_000
    get(server, target)
    assert server.ranges == [None, "bytes=300000-"]
    assert nothing_but(target)


def test_a_server_that_lies_leaves_nothing(server: "Server", target: Path) -> None:
    server.lie = True
    with pytest.raises(FetchError, match=rf"sent 1,024,000 bytes with MD5 .* instead of {MD5}"):
        get(server, target)
    assert list(target.parent.iterdir()) == []


def test_a_lie_never_replaces_what_was_there(server: "Server", target: Path) -> None:
    server.lie = True
    target.parent.mkdir()
    target.write_bytes(b"the old one")
    with pytest.raises(FetchError):
        get(server, target)
    assert target.read_bytes() == b"the old one"


def test_a_spoilt_beginning_is_not_the_servers_fault(server: "Server", target: Path) -> None:
    target.parent.mkdir()
    part = target.with_name("data.bin.part")
    part.write_bytes(b"x" * 1000)
    get(server, target)
    assert server.ranges == ["bytes=1000-", None]
    assert nothing_but(target)


@pytest.mark.parametrize("beginning", [CONTENT, CONTENT + b"too much"])
def test_a_part_that_is_whole_or_too_long(server: "Server", target: Path, beginning: bytes) -> None:
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(beginning)
    get(server, target)
    assert nothing_but(target)


def test_what_the_server_has_not_is_reported_at_once(server: "Server", target: Path) -> None:
    server.files.clear()
    with pytest.raises(FetchError, match=r"data\.bin answered 404"):
        get(server, target)
    assert len(server.ranges) == 1


def test_no_server_at_all(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="could not be downloaded"):
        download("http://127.0.0.1:1/x", tmp_path / "x", checksum=MD5, attempts=2, pause=0)


def test_a_place_that_cannot_be_written(server: "Server", target: Path) -> None:
    target.parent.write_text("a file where the folder should be")
    with pytest.raises(FetchError, match="cannot be written"):
        get(server, target)
