"""Atomic writes on disks that are full, read-only, or lose their writer."""

import json
import signal
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from nscl.atomic import LEFTOVER_PREFIX, remove_leftovers
from nscl.errors import NsclError
from nscl.results import FormatError, WriteError, open_atomic, write_bytes, write_json, write_text

WRITE = """
import sys
from nscl.errors import NsclError
from nscl.results import write_bytes
try:
    write_bytes(sys.argv[1], b"n" * 200_000)
except NsclError as error:
    print(error)
"""


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_what_is_written_is_read(tmp_path):
    write_bytes(tmp_path / "a", b"\x00\xff")
    write_text(tmp_path / "b", "λ ≤ a·λ")
    write_json(str(tmp_path / "c"), {"x": [1, None, 0.1]})
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b").read_text(encoding="utf-8") == "λ ≤ a·λ"
    assert json.loads((tmp_path / "c").read_text()) == {"x": [1, None, 0.1]}
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("x")
    write_text(tmp_path / "atomic", "x")
    plain, atomic = (stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("plain", "atomic"))
    assert atomic == plain


def test_an_exception_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write_half() -> None:
        with open_atomic(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_file_too_large_for_the_process_leaves_the_old_file(tmp_path, start):
    path = tmp_path / "file"
    path.write_text("old")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    output, trouble = start(limit + WRITE, path).communicate(timeout=30)
    assert output.startswith(f"cannot write {path}: File too large"), trouble
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


MOUNTED = """
import pathlib, subprocess, sys
folder, options = sys.argv[2:4]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "nscl-test", folder], check=True)
path = pathlib.Path(sys.argv[1])
path.write_text("old")
if options:
    subprocess.run(["mount", "-o", options, folder], check=True)
"""
AFTERWARDS = """
print(path.read_text(), *sorted(entry.name for entry in path.parent.iterdir()))
"""


@pytest.mark.parametrize(
    ("options", "reason"),
    [("", "No space left on device"), ("remount,ro", "Read-only file system")],
)
def test_a_full_and_a_read_only_disk(tmp_path, start, options, reason):
    """On a small tmpfs of their own, so that root, too, meets a disk that says no."""
    own = ("unshare", "--mount", "--map-root-user")
    try:
        subprocess.run(
            [*own, "mount", "-t", "tmpfs", "x", tmp_path], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lets nobody mount a small disk in a namespace of their own")
    child = start(MOUNTED + WRITE + AFTERWARDS, tmp_path / "file", tmp_path, options, prefix=own)
    output, trouble = child.communicate(timeout=30)
    lines = output.splitlines()
    assert lines[0].startswith(f"cannot write {tmp_path / 'file'}: {reason}"), trouble
    assert lines[1:] == ["old file"]


@pytest.mark.parametrize("place", ["missing/file", "occupied/file", "folder"])
def test_an_impossible_place_is_named_with_its_reason(tmp_path, place):
    (tmp_path / "occupied").write_text("a file where a folder should be")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(WriteError, match=r"cannot write .*: \w.*; nothing half-written") as caught:
        write_bytes(tmp_path / place, b"x")
    assert isinstance(caught.value, NsclError)
    assert str(tmp_path / place) in str(caught.value)
    assert names(tmp_path) == ["folder", "occupied"]


@pytest.mark.parametrize("value", [{"loss": float("nan")}, {"x": object()}])
def test_json_that_others_cannot_read_is_refused(tmp_path, value):
    (tmp_path / "a.json").write_text("old")
    with pytest.raises(FormatError, match="not standard JSON"):
        write_json(tmp_path / "a.json", value)
    assert (tmp_path / "a.json").read_text() == "old"


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "file"
    texts = [b"a" * 100_000, b"b" * 50_000]
    write_bytes(path, texts[0])
    done = threading.Event()

    def rewrite() -> None:
        for i in range(40):
            write_bytes(path, texts[i % 2])
        done.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    while not done.is_set():
        assert path.read_bytes() in texts
    writer.join()


def test_a_killed_writer_leaves_the_old_file_and_a_leftover_that_can_be_cleared(tmp_path, start):
    path = tmp_path / "file"
    path.write_text("old")
    child = start(
        "import sys, time\n"
        "from nscl.results import open_atomic\n"
        "with open_atomic(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); print('ready', flush=True); time.sleep(60)\n",
        path,
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert path.read_text() == "old"
    assert [p.name[: len(LEFTOVER_PREFIX)] for p in remove_leftovers(tmp_path)] == [LEFTOVER_PREFIX]
    assert names(tmp_path) == ["file"]
