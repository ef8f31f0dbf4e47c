from pathlib import Path

import pytest

from nscl.data.cache import cache_dir, write_atomically


def test_cache_honours_xdg_and_falls_back_to_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert cache_dir() == tmp_path / "c" / "nscl"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == tmp_path / ".cache" / "nscl"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == tmp_path / ".cache" / "nscl"


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file: object) -> None:
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
