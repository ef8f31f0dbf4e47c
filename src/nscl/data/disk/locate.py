"""Find a data set's files: in the folder asked for, in ``$NSCL_DATA``, in the user's cache."""

import os
from dataclasses import dataclass
from pathlib import Path

from nscl.data.disk.canonical import Dataset, Form
from nscl.data.disk.checksums import verify
from nscl.data.errors import DataNotFoundError
from nscl.user_cache import cache_dir


@dataclass(frozen=True)
class Located:
    """A data set found on disk: ``path`` is the archive, or the folder with its files."""

    dataset: Dataset
    form: Form
    path: Path

    @property
    def files(self) -> tuple[tuple[Path, str | None], ...]:
        """Every file with its published checksum, where one is published."""
        if not self.form.files:
            return ((self.path, self.form.checksum),)
        return tuple((self.path / name, checksum) for name, checksum in self.form.files)


def data_roots(data_dir: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched, in order and without repetition."""
    named = (data_dir, os.environ.get("NSCL_DATA") or None)
    roots = [Path(root).expanduser() for root in named if root is not None]
    return tuple(dict.fromkeys([*roots, cache_dir()]))


def locate(dataset: Dataset, roots: tuple[Path, ...]) -> Located | None:
    """Return the first complete form of the data set under these folders, or None."""
    for root in roots:
        for form in dataset.forms:
            for path in _candidates(root, form):
                found = Located(dataset, form, path)
                if all(file.exists() for file, _ in found.files):
                    return found
    return None


def require(
    dataset: Dataset, benchmark: str, data_dir: str | os.PathLike[str] | None = None
) -> Located:
    """Return the verified data set, or raise an error that says what to do."""
    roots = data_roots(data_dir)
    found = locate(dataset, roots)
    if found is None:
        raise DataNotFoundError(_missing(dataset, benchmark, roots))
    for path, checksum in found.files:
        if checksum is not None:
            verify(path, checksum, remedy=f"delete it and run `nscl data fetch {benchmark}`")
    return found


def partial_forms(dataset: Dataset, roots: tuple[Path, ...]) -> list[str]:
    """Describe the folders that hold some of the data set's files but not all."""
    found = []
    for root in roots:
        for form in dataset.forms:
            for path in _candidates(root, form):
                lacking = [name for name, _ in form.files if not (path / name).exists()]
                if 0 < len(lacking) < len(form.files):
                    found.append(f"{path} lacks {', '.join(lacking)}")
    return found


def _candidates(root: Path, form: Form) -> tuple[Path, ...]:
    """Accept the data set's own folder as root too: users give either."""
    parts = Path(form.path).parts
    # The full path must match: a folder "raw" may hold MNIST, whose files have the same names.
    own = bool(form.files) and root.resolve().parts[-len(parts) :] == parts
    return (root / form.path, root) if own else (root / form.path,)


def _missing(dataset: Dataset, benchmark: str, roots: tuple[Path, ...]) -> str:
    forms = " or ".join(str(form) for form in dataset.forms)
    places = ", ".join(str(root) if root.is_dir() else f"{root} (no such folder)" for root in roots)
    partial = "".join(f"; {line}" for line in partial_forms(dataset, roots))
    return (
        f"{dataset.title} was not found: looked for {forms} in {places}{partial}; "
        f"run `nscl data fetch {benchmark}`, or name the folder with --data-dir or $NSCL_DATA"
    )
