from pathlib import Path

import pytest

from nscl.data.disk.cache import cache_file


def test_a_file_of_the_cache_makes_its_folder_and_fails_without_litter(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with cache_file(path) as file:
        file.write(b"old")
    with pytest.raises(RuntimeError, match="power cut"), cache_file(path):
        raise RuntimeError("power cut")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
