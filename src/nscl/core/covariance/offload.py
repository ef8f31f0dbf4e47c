"""Covariances out of RAM: each in a temporary file that disappears with the last that uses it.

A file is written once and never changed, so copies of a memory may share it.
"""

import os
import secrets
import shutil
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.errors import MemoryFileError


class TemporaryPath:
    """A file or folder that is removed when nothing refers to it any more.

    Only the process that made it removes it: a forked child has the same objects.
    """

    def __init__(self, path: Path, *, within: "TemporaryPath | None" = None) -> None:
        self.path, self.maker = path, os.getpid()
        self._within = within  # kept: a folder stays as long as a file in it
        weakref.finalize(self, _remove, path, self.maker)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _remove(path: Path, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _new_folder() -> TemporaryPath:
    return TemporaryPath(Path(tempfile.mkdtemp(prefix="nscl-")))


@dataclass(frozen=True)
class OnDisk:
    """A tensor in a file of its own, mapped into memory only while it is used."""

    file: TemporaryPath
    nbytes: int

    def load(self) -> Tensor:
        """Map the file."""
        try:
            return load_file(self.file.path)["sums"]
        except OSError as problem:
            raise MemoryFileError(
                f"{self.file.path} is gone ({problem}): offload='disk' keeps covariances in a "
                "temporary folder; set TMPDIR to one that is not cleaned up"
            ) from problem


class DiskOffload:
    """A temporary folder for the covariances of one memory, in one process."""

    def __init__(self) -> None:
        self._folder = _new_folder()

    def __deepcopy__(self, memo: dict[int, Any]) -> "DiskOffload":
        return DiskOffload()

    @property
    def folder(self) -> Path:
        """Where new files go; in a forked child not where its parent's are."""
        if self._folder.maker != os.getpid():
            self._folder = _new_folder()
        return self._folder.path

    def offload(self, covariance: Covariance) -> Covariance:
        """Move a covariance's sums to disk."""
        if not isinstance(covariance.stored, torch.Tensor):
            return covariance
        path = self.folder / f"{secrets.token_hex(8)}.safetensors"
        file = TemporaryPath(path, within=self._folder)
        try:
            save_file({"sums": covariance.stored.contiguous()}, path)
        except (OSError, SafetensorError) as problem:
            raise MemoryFileError(
                f"{path} cannot be written ({problem}): the memory is unchanged; free some space, "
                "or set TMPDIR to a folder that has it"
            ) from problem
        return replace(covariance, stored=OnDisk(file, covariance.stored.nbytes))
