"""One process per run: a lock that the kernel releases when its holder dies, however it dies.

``flock`` belongs to the open file, so SIGKILL or a power cut leave nothing to clean up. The file's
text (process id and host) is only for the message shown to the second process.
"""

import json
import os
import socket
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from nscl.results.atomic import cannot_write
from nscl.results.errors import RunLockedError, WriteError


class RunLock:
    """Hold the file at ``path`` locked, from ``acquire`` (or ``with``) to ``release``.

    A lock that another process holds is a RunLockedError, at once. A child made by ``fork`` does
    not hold its parent's lock, so that a lost data worker cannot keep a dead run locked.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock, or say who has it."""
        if self.held:
            raise RunLockedError(f"{self.path.parent} is locked by this very object already")
        try:
            descriptor = self._open_locked()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_myself()).encode(), 0)
        except RunLockedError:
            raise
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._descriptor = descriptor
        _HELD.add(self)

    def release(self) -> None:
        """Give the lock back and remove its file; nothing happens when it is not held."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            self.path.unlink()
        self._forget()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _open_locked(self) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _flock(descriptor, self.path)
                if self._is_ours(descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _is_ours(self, descriptor: int) -> bool:
        # The former holder may have removed the file between our open and our lock.
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _forget(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _HELD.discard(self)


_HELD: "weakref.WeakSet[RunLock]" = weakref.WeakSet()


def _flock(descriptor: int, path: Path) -> None:
    try:
        # Here, not above: reports also read results on systems that have no fcntl.
        import fcntl
    except ImportError:
        raise WriteError(
            f"cannot lock {path}: this system has no flock; run on a POSIX one"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunLockedError(
            f"{path.parent} is being worked on by {_holder(descriptor)}: "
            "wait for that process, or stop it and try again"
        ) from None


def _myself() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname()}


def _holder(descriptor: int) -> str:
    try:
        said = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {said['pid']} on {said['host']}"
    except (ValueError, KeyError, TypeError):
        return "a process that has not said its name yet"


def _forget_all() -> None:
    for lock in list(_HELD):
        lock._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
