"""A folder, a zip and a tar are walked alike; one that is broken is named with its kind."""

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nscl.data.errors import CorruptDataError
from nscl.data.readers.archives import walk_files

FILES = {"a.txt": b"one", "deep/b.txt": b"two" * 5000, "deep/c.bin": bytes(range(256)) * 20}


@pytest.fixture
def pack(tmp_path: Path) -> Callable[[str], Path]:
    """The files as a folder, or as an archive that knows nothing of a root folder."""
    for name, content in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def packed(kind: str) -> Path:
        if not kind:
            return tmp_path / "tree"
        archive = tmp_path / f"tree.{kind}"
        if kind == "zip":
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
                for path in (tmp_path / "tree").rglob("*"):
                    file.write(path, path.relative_to(tmp_path / "tree"))
        else:
            with tarfile.open(archive, f"w:{kind.removeprefix('tar').lstrip('.')}") as tar:
                tar.add(tmp_path / "tree", "")
        return archive

    return packed


@pytest.mark.parametrize("kind", ["", "zip", "tar", "tar.gz", "tar.xz"])
def test_only_wanted_files_come_out_and_as_they_went_in(
    kind: str, pack: Callable[[str], Path]
) -> None:
    source = pack(kind)
    assert dict(walk_files(source, lambda _: True)) == FILES
    texts = dict(walk_files(source, lambda name: name.endswith(".txt")))
    assert set(texts) == {"a.txt", "deep/b.txt"}


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_archive_is_named(kind: str, share: float, pack: Callable[[str], Path]) -> None:
    source = pack(kind)
    whole = source.read_bytes()
    source.write_bytes(whole[: int(share * len(whole))])
    suffix = kind.rpartition(".")[2]
    with pytest.raises(CorruptDataError, match=rf"tree\.{kind} is truncated or not a {suffix} ar"):
        dict(walk_files(source, lambda _: True))
