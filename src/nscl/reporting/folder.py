"""The folder of a report: known by its manifest, replaced file by file; other files stay.

A folder that holds anything but a report is refused. An existing report is replaced: each file
atomically, files that the new report no longer has are removed, other files stay untouched. A
figure is kept if it would show the same (``digest``) and its file is unchanged (``sha256``).
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from nscl.reporting.errors import ReportError
from nscl.reporting.gather import MANIFEST
from nscl.results import FormatError, write_bytes, write_json
from nscl.results.records.reading import read_json
from nscl.results.writing import make_folder, refuse_dangling_link

KIND = "nscl report"


class ReportFolder:
    """The folder ``path``, opened for writing a report: refuses what is not its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._digests: dict[str, dict[str, str]] = {}  # of figures: what they show, their bytes
        self._before = self._known()
        self._now: list[str] = []

    def check(self, names: Iterable[str]) -> None:
        """Refuse to write over files that no earlier report has made."""
        for name in names:
            if name not in self._before and (self.path / name).exists():
                raise ReportError(
                    f"{self.path / name} exists and was not made by nscl report: "
                    "move it away or choose another --out"
                )

    def keep(self, name: str, digest: str) -> bool:
        """Whether a figure of the earlier report can stay, and if so, let it stay."""
        known = self._digests.get(name, {})
        if name not in self._before or known.get("digest") != digest:
            return False
        try:
            data = (self.path / name).read_bytes()
        except OSError:
            return False  # removed or unreadable: drawn again, and writing says what is wrong
        if known.get("sha256") != hashlib.sha256(data).hexdigest():
            return False
        self._now.append(name)
        return True

    def write(self, name: str, data: bytes | str, *, digest: str = "") -> None:
        """Write one file, atomically; the manifest knows it before it is there."""
        self.check([name])
        target = self.path / name
        data = data.encode() if isinstance(data, str) else data
        self._now.append(name)
        if digest:
            sha256 = hashlib.sha256(data).hexdigest()
            self._digests[name] = {"digest": digest, "sha256": sha256}
        make_folder(target.parent)
        self._write_manifest({*self._before, *self._now})
        write_bytes(target, data)

    def finish(self) -> None:
        """Remove what only the previous report had."""
        for name in sorted(self._before - set(self._now)):
            (self.path / name).unlink(missing_ok=True)
        self._write_manifest(set(self._now))

    def _write_manifest(self, names: set[str]) -> None:
        digests = {name: self._digests[name] for name in sorted(names & self._digests.keys())}
        record = {"kind": KIND, "schema": 1, "files": sorted(names), "digests": digests}
        write_json(self.path / MANIFEST, record)

    def _known(self) -> set[str]:
        refuse_dangling_link(self.path)
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
        self._digests = _digests(record.get("digests"))
        return set(names)


def _digests(record: object) -> dict[str, dict[str, str]]:
    """What the manifest has on figures; an earlier version's has nothing."""
    if not isinstance(record, dict):
        return {}
    return {name: each for name, each in record.items() if isinstance(each, dict)}


def _safe(name: object) -> bool:
    """Whether a name stays inside the folder: a manifest may have been edited."""
    if not isinstance(name, str) or not name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts
