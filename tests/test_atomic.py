"""The one atomic writer; on full, read-only and lost disks see tests/results/test_writing.py."""

import errno
import os
from pathlib import Path

import pytest

from nscl import atomic


def test_a_writer_that_wants_a_name_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic.replacing_path(path) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.startswith(atomic.LEFTOVER_PREFIX)
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_writes_nothing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), atomic.replacing_path(path):
        pass
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("number", "harmless"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)]
)
def test_a_folder_that_cannot_be_synced(
    number: int, harmless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems cannot; a disk that reports an error is another matter."""

    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    if harmless:
        atomic.sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            atomic.sync_folder(tmp_path)
