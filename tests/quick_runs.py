"""Whole runs of ``split-digits-5``, preset quick, made once for all tests of a session."""

import fcntl
from pathlib import Path
from typing import Any

from nscl.results import Result
from nscl.training.config.build import build_config
from nscl.training.experiment import run

#: What ``auto`` comes to where no other pictures are on disk: the same run on every machine.
POOL = {"muc-mas": {"pool": "procedural"}, "gd-wild": {"pool": "procedural"}}


class QuickRuns:
    """``runs(method)`` trains, or reads back what any process of this session has trained."""

    def __init__(self, root: Path) -> None:
        self.folder, self._locks = root / "quick-runs", root / "quick-locks"
        self._locks.mkdir(exist_ok=True)

    def __call__(self, method: str, seed: int = 0) -> Result:
        given: dict[str, Any] = {"method": method, "seed": seed, "out": self.folder}
        config = build_config("split-digits-5", {**given, "options": POOL.get(method, {})})
        with (self._locks / f"{method}-{seed}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return run(config)
