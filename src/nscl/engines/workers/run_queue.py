"""The queue of runs, with those at its end that wait for another process."""

import time
from collections.abc import Iterable

from nscl.engines.job import Ending, Job, ended_before

PATIENCE = 60.0  # seconds until a lock whose file stays is tried again: its holder may be dead


class RunQueue:
    """The runs to be started, in order; those that another process works on come last.

    Every attempt costs a process that loads torch, so a locked run waits until the lock's file is
    gone. A holder that was killed leaves the file behind, hence PATIENCE.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = list(jobs)
        self._again: dict[str, float] = {}  # when to try at the latest

    def put_back(self, job: Job) -> None:
        """Another process works on it: not now."""
        self.jobs.append(job)
        self._again[job.name] = time.monotonic() + PATIENCE

    def next(self) -> Job | None:
        """Take the first run that can be tried, if there is one."""
        found = next((job for job in self.jobs if self._is_free(job)), None)
        if found is not None:
            self.jobs.remove(found)
        return found

    def finished_elsewhere(self) -> list[Ending]:
        """Take the runs that another process has finished meanwhile."""
        over = [job for job in self.jobs if job.name in self._again and job.directory.is_finished]
        self.jobs = [job for job in self.jobs if job not in over]
        return [ended_before(job) for job in over]

    def _is_free(self, job: Job) -> bool:
        late = time.monotonic() >= self._again.get(job.name, 0.0)
        return late or not job.directory.lock_path.exists()
