"""Runs on a Ray cluster: each asks for CPUs and a GPU; a lost worker's run goes on elsewhere.

The folder of the runs and the data must be on storage that all nodes share under the same path:
that is where checkpoints are, so a run that Ray starts again continues where the lost one stood.
Ray: Moritz et al., OSDI 2018.
"""

import importlib
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

from nscl.engines.display.board import NO_LIMIT
from nscl.engines.job import Ending, Job
from nscl.engines.workers.ray_worker import train
from nscl.errors import NsclError

RETRIES = 5  # of runs whose worker or node was lost; errors of the run itself are not retried
CLIENT = "ray://"


class ClusterError(NsclError, RuntimeError):
    """The cluster cannot be used: names the reason and the way out."""


class RayEngine:
    """Hands runs to Ray, which queues them by their CPUs; ``jobs`` limits how many at once."""

    def __init__(self, *, address: str | None = None, jobs: int | None = None) -> None:
        self._ray = _import_ray()
        self._mine = not self._ray.is_initialized()
        if self._mine:
            _connect(self._ray, address)
        self._slots = jobs or NO_LIMIT
        # One process per run, as everywhere: no state and no memory peak of an earlier run.
        self._train = self._ray.remote(max_calls=1, max_retries=RETRIES)(train)
        self._open: dict[Any, Job] = {}
        self._queued: dict[str, tuple[Job, int]] = {}  # and how long their logs were

    @property
    def slots(self) -> int:
        """How many runs may be handed over at once."""
        return self._slots

    @property
    def busy(self) -> int:
        """How many are handed over and not done."""
        return len(self._open)

    def start(self, job: Job) -> None:
        """Hand a run over; Ray queues it until it fits on a node."""
        needs = resources(job)
        _check_fits(job, needs, [node for node in self._ray.nodes() if node["Alive"]])
        place = {"out": job.config.out.resolve(), "data_dir": _absolute(job.config.data_dir)}
        config = job.config.model_copy(update=place)
        log = job.log.resolve()
        self._queued[job.name] = job, _length(log)
        task = self._train.options(num_cpus=needs["CPU"], num_gpus=needs["GPU"], name=job.name)
        self._open[task.remote(config.model_dump_json(), str(log), str(Path.cwd()))] = job

    def begun(self) -> list[Job]:
        """Runs whose worker began its log: without its dashboard Ray does not report them."""
        begun = [job for job, before in self._queued.values() if _length(job.log) > before]
        for job in begun:
            del self._queued[job.name]
        return begun

    def poll(self) -> list[Ending]:
        """Runs that ended since the last call."""
        if not self._open:
            return []
        over, _ = self._ray.wait(list(self._open), num_returns=len(self._open), timeout=0)
        return [self._ending(reference) for reference in over]

    def stop(self) -> None:
        """Ask all runs to finish their step and save; those that wait are taken back."""
        for reference in self._open:
            self._ray.cancel(reference, force=False)

    def close(self) -> None:
        """Take back what is left, and leave the cluster if we entered it."""
        for reference in self._open:
            with suppress(self._ray.exceptions.RayError, ValueError):
                self._ray.cancel(reference, force=True)
        self._open = {}
        if self._mine:
            self._ray.shutdown()

    def _ending(self, reference: Any) -> Ending:
        job, errors = self._open.pop(reference), self._ray.exceptions
        self._queued.pop(job.name, None)
        try:
            state, error = self._ray.get(reference)
        except errors.TaskCancelledError:
            return Ending(job, "stopped", "stopped; the same command continues it")
        except errors.RayTaskError as problem:
            return Ending(job, "failed", str(problem).strip().splitlines()[-1])
        except errors.RayError as problem:
            lost = type(problem).__name__
            return Ending(
                job, "killed", f"lost {RETRIES + 1} times ({lost}); the same command continues it"
            )
        if state == "done" and not job.directory.is_finished:
            return Ending(
                job,
                "failed",
                f"it is done but {job.directory.path} has no result here: "
                "--out must be on storage that all nodes share",
            )
        return Ending(job, state, error)


def resources(job: Job) -> dict[str, int]:
    """What a run asks for: a CPU per thread, and a GPU of its own with ``--device cuda``.

    Ray hides GPUs from runs that did not ask for one, so ``--device auto`` is the CPU there.
    """
    device = job.config.device
    if device.startswith("cuda:"):
        raise ClusterError(
            f"--device {device} names one card, but on a cluster Ray chooses it: use --device cuda"
        )
    return {"CPU": job.config.threads or 1, "GPU": int(device == "cuda")}


def _check_fits(job: Job, needs: dict[str, int], nodes: list[dict[str, Any]]) -> None:
    """Refuse a run that fits on no node: it would wait for ever."""
    offers = [node["Resources"] for node in nodes]
    fit = [offer for offer in offers if offer.get("GPU", 0.0) >= needs["GPU"]]
    if needs["GPU"] and not fit:
        raise ClusterError(f"{job.title} needs a GPU and no node has one: use --device cpu")
    most = max((offer.get("CPU", 0.0) for offer in fit), default=0.0)
    if needs["CPU"] > most:
        where = "node with a GPU" if needs["GPU"] else "node"
        raise ClusterError(
            f"{job.title} needs {needs['CPU']} CPUs and no {where} has more than {most:.0f}: "
            "lower --threads"
        )


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ClusterError("--engine ray needs Ray: pip install 'nscl[ray]'") from None


def _connect(ray: Any, address: str | None) -> None:
    if (address or "").startswith(CLIENT) and importlib.util.find_spec("grpc") is None:
        raise ClusterError(f"--address {address} needs Ray's client: pip install 'nscl[ray]'")
    local = {} if address else {"include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as problem:
        where = f"the Ray cluster at {address}" if address else "a local Ray"
        reason = str(problem).strip().splitlines()[0]
        raise ClusterError(f"cannot reach {where}: {reason}; check --address") from problem


def _length(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()
