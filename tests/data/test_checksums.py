import hashlib
import os
from pathlib import Path

import pytest

from nscl.data import checksums
from nscl.data.checksums import is_intact, md5_of, verify
from nscl.data.errors import CorruptDataError

CONTENT = b"some bytes" * 1000
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def test_md5_is_that_of_hashlib(file: Path) -> None:
    assert md5_of(file) == MD5


def test_a_verified_file_is_not_hashed_again_until_it_changes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []
    monkeypatch.setattr(checksums, "md5_of", lambda path: hashed.append(path) or md5_of(path))
    assert is_intact(file, MD5)
    assert is_intact(file, MD5)
    assert len(hashed) == 1
    file.write_bytes(CONTENT[:-1] + b"X")  # same size
    os.utime(file, ns=(1, 1))
    assert not is_intact(file, MD5)
    assert len(hashed) == 2
    assert not is_intact(file, MD5)  # a failure is never remembered
    assert len(hashed) == 3


def test_corruption_names_file_and_remedy(file: Path) -> None:
    file.write_bytes(CONTENT[:-5])
    with pytest.raises(CorruptDataError, match=r"file is corrupt: its 9,995 bytes .*; get another"):
        verify(file, MD5, remedy="get another")


def test_an_unwritable_cache_only_costs_time(file: Path, private_cache: Path) -> None:
    private_cache.parent.mkdir(exist_ok=True)
    private_cache.write_text("a file where the folder should be")
    assert is_intact(file, MD5)
    assert is_intact(file, MD5)


def test_a_spoilt_note_is_ignored(file: Path, private_cache: Path) -> None:
    assert is_intact(file, MD5)
    (note,) = (private_cache / "verified").iterdir()
    note.write_text("{not json")
    assert is_intact(file, MD5)
