"""The folder of a report: known by its manifest, replaced file by file, never at others' cost.

A folder that holds anything but a report is refused. An existing report is replaced: each file
atomically, files that the new report has no more are removed, foreign files stay untouched.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from nscl.reporting.errors import ReportError
from nscl.reporting.gather import MANIFEST
from nscl.results import FormatError, write_bytes, write_json
from nscl.results.atomic import cannot_write
from nscl.results.reading import read_json

KIND = "nscl report"


class ReportFolder:
    """The folder ``path``, opened for writing a report: refuses what is not its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._before = self._known()
        self._now: list[str] = []

    def check(self, names: Iterable[str]) -> None:
        """Refuse to write over files that no earlier report has made."""
        for name in names:
            if name not in self._before and (self.path / name).exists():
                raise ReportError(
                    f"{self.path / name} is there and was not made by nscl report: "
                    "move it away or choose another --out"
                )

    def write(self, name: str, data: bytes | str) -> None:
        """Write one file, atomically; the manifest knows it before it is there."""
        self.check([name])
        target = self.path / name
        self._now.append(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(target.parent, error) from error
        self._write_manifest({*self._before, *self._now})
        write_bytes(target, data.encode() if isinstance(data, str) else data)

    def finish(self) -> None:
        """Remove what only the former report had."""
        for name in sorted(self._before - set(self._now)):
            (self.path / name).unlink(missing_ok=True)
        self._write_manifest(set(self._now))

    def _write_manifest(self, names: set[str]) -> None:
        write_json(self.path / MANIFEST, {"kind": KIND, "schema": 1, "files": sorted(names)})

    def _known(self) -> set[str]:
        if self.path.exists() and not self.path.is_dir():
            raise ReportError(f"{self.path} is a file: choose another --out")
        if not self.path.exists() or not any(self.path.iterdir()):
            return set()
        if not (self.path / MANIFEST).exists():
            raise ReportError(
                f"{self.path} holds something that is not a report: choose another --out"
            )
        return self._manifest()

    def _manifest(self) -> set[str]:
        try:
            record = read_json(self.path / MANIFEST)
        except FormatError as problem:
            raise ReportError(f"{problem}: choose another --out") from problem
        names = record.get("files")
        if record.get("kind") != KIND or not isinstance(names, list) or not all(map(_safe, names)):
            raise ReportError(
                f"{self.path / MANIFEST} is not that of a report: choose another --out"
            )
        return set(names)


def _safe(name: object) -> bool:
    """A manifest is a file like any other: no name in it may lead out of the folder."""
    if not isinstance(name, str) or not name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts
