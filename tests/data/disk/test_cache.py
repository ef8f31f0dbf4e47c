from pathlib import Path

import pytest

from nscl.data.disk.cache import cache_file
from nscl.user_cache import cache_dir


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


def test_a_file_of_the_cache_makes_its_folder_and_fails_without_litter(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with cache_file(path) as file:
        file.write(b"old")
    with pytest.raises(RuntimeError, match="power cut"), cache_file(path):
        raise RuntimeError("power cut")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
