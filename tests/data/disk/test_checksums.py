import hashlib
import os
from pathlib import Path

import pytest

from nscl.data.disk import checksums
from nscl.data.disk.checksums import checksum_of, is_intact, verify
from nscl.data.errors import CorruptDataError

CONTENT = b"some bytes" * 1000
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def test_checksums_are_those_of_hashlib(file: Path) -> None:
    assert checksum_of(file, "MD5") == MD5
    assert checksum_of(file, "SHA-256") == SHA


def test_a_checksum_is_known_by_its_length(file: Path) -> None:
    assert is_intact(file, SHA)
    assert not is_intact(file, SHA[::-1])
    with pytest.raises(CorruptDataError, match=f"published SHA-256 {SHA[::-1]}; get another"):
        verify(file, SHA[::-1], remedy="get another")


def test_a_verified_file_is_not_hashed_again_until_it_changes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []
    monkeypatch.setattr(
        checksums, "checksum_of", lambda path, kind: hashed.append(path) or checksum_of(path, kind)
    )
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
