"""Walk the files of a folder, a zip or a tar in one pass, as (path inside, bytes)."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from nscl.data.errors import CorruptDataError

_BROKEN = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError)

Wanted = Callable[[str], bool]


def walk_files(source: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted files of a folder or an archive; nothing is unpacked to disk."""
    walk, kind = _walk_tar, f"truncated or not a {source.suffix[1:]} archive"
    if source.is_dir():
        walk, kind = _walk_folder, "a folder that cannot be read"
    elif source.suffix == ".zip":
        walk = _walk_zip
    try:
        yield from walk(source, wanted)
    except _BROKEN as error:
        raise CorruptDataError(f"{source} is {kind} ({error})") from None


def _walk_folder(source: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if wanted(name) and path.is_file():
            yield name, path.read_bytes()


def _walk_zip(source: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            if not member.is_dir() and wanted(member.filename):
                yield member.filename, archive.read(member)


def _walk_tar(source: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(source, "r:*") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and wanted(member.name) else None
            if file is not None:
                yield member.name, file.read()
