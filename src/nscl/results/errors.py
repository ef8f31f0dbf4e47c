"""Errors about the files of a run: each names the path, the reason and the way out."""

from nscl.errors import NsclError


class WriteError(NsclError, OSError):
    """A file could not be written: the disk is full, the folder is read-only or missing."""


class FormatError(NsclError, ValueError):
    """A file is missing, truncated, foreign, or written by a newer version."""


class RunMismatchError(NsclError, ValueError):
    """A folder belongs to another configuration, or is not a run at all."""


class RunFinishedError(NsclError, RuntimeError):
    """A run has its result already; results are never overwritten."""


class RunLockedError(NsclError, RuntimeError):
    """Another process works on this run: names its id and its host."""
