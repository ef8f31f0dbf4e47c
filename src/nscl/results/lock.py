"""One process per run: a lock that the kernel releases when its holder dies, however it dies.

``filelock`` takes the lock, and drops it in a child made by ``fork``, so that a lost data worker
cannot keep a dead run locked. Added here: the lock's file names its holder for the message shown
to the second process, and it is removed on release, which is how waiting runs see that it is free.
"""

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nscl.results.errors import RunLockedError
from nscl.results.writing import cannot_write

if TYPE_CHECKING:
    from filelock import FileLock

PATIENCE = 0.1  # seconds: a holder that is just leaving removes the file that we have opened


class RunLock:
    """Hold the file at ``path`` locked, from ``acquire`` (or ``with``) to ``release``.

    A lock that another process or another object holds is a RunLockedError that names the holder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: FileLock | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._lock is not None and self._lock.is_locked

    def acquire(self) -> None:
        """Take the lock, or say who has it."""
        # Imported late: reports read results without ever locking one.
        from filelock import FileLock, Timeout

        if self.held:
            raise RunLockedError(f"{self.path.parent} is locked by this very object already")
        # A soft lock would stay behind when its holder is killed.
        lock = FileLock(self.path, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire(timeout=PATIENCE, poll_interval=PATIENCE / 10)
            self._lock = lock
            self.path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        except Timeout:
            raise RunLockedError(
                f"{self.path.parent} is being worked on by {_holder(self.path)}: "
                "wait for that process, or stop it and try again"
            ) from None
        except OSError as error:
            self.release()
            raise cannot_write(self.path, error) from error

    def release(self) -> None:
        """Give the lock back and remove its file; nothing happens when it is not held."""
        if self._lock is None or not self.held:
            return
        # Removed while still held: filelock does not accept a file that has lost its name.
        with suppress(OSError):
            self.path.unlink()
        self._lock.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not written its name yet"
