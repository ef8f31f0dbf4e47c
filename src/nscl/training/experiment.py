"""``nscl.run``: from a configuration to its result, in the run's own folder."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nscl.data.stored.digest import stream_digest
from nscl.data.tasks import TaskStream
from nscl.results import ConfigFile, Result, RunDirectory, fingerprint
from nscl.training.config.build import complete
from nscl.training.config.schema import RunConfig
from nscl.training.display.display import Display, Quiet
from nscl.training.process.device import Ranks
from nscl.training.process.interrupt import StopSignal
from nscl.training.setup import Setup
from nscl.training.task_loop import TaskLoop
from nscl.training.tracking.tracker import check_library, track_finished


def run(
    config: RunConfig, *, stream: TaskStream | None = None, display: Display | None = None
) -> Result:
    """Train a stream of tasks; a finished run is read back, a broken one continues.

    ``stream`` is one of your own, in place of the named benchmark; its digest joins the
    configuration, so that a run never continues on other data.

    >>> import nscl
    >>> config = nscl.build_config("split-digits-5", {"method": "finetune"})
    >>> nscl.run(config)  # doctest: +SKIP
    """
    config = complete(config)
    if stream is not None:
        own = {"digest": stream_digest(stream), "scenario": stream.scenario}
        config = config.model_copy(update={"data": config.data.model_copy(update=own)})
    ranks = Ranks()
    try:
        with _threads(config.threads):
            return _run(config, ranks, display or Quiet(), stream)
    finally:
        ranks.close()


def _run(config: RunConfig, ranks: Ranks, display: Display, stream: TaskStream | None) -> Result:
    check_library(config.track)
    record = _record(config)
    directory = RunDirectory(config.out / record.name)
    if directory.is_finished:
        if ranks.is_first:
            track_finished(config.track, directory)
        return directory.result()
    setup = Setup.build(config, ranks, stream=stream)
    try:
        # Only now, with good data, network and options, is a folder made.
        with _first_rank_first(ranks):
            directory.start(record)
        with _alone(directory, ranks), StopSignal() as signal:
            if ranks.largest(int(directory.is_finished)):  # by another process, meanwhile
                return directory.result()
            return TaskLoop(config, setup, directory, ranks, display, signal).run()
    finally:
        setup.close()


def _record(config: RunConfig) -> ConfigFile:
    return ConfigFile(
        benchmark=config.benchmark,
        method=config.method,
        seed=config.seed,
        config=config.identity(),
        environment=fingerprint() | config.place(),
    )


@contextmanager
def _first_rank_first(ranks: Ranks) -> Iterator[None]:
    """Other ranks enter when the first has left: they must not see a half-made folder."""
    if not ranks.is_first:
        ranks.wait()
    yield
    if ranks.is_first:
        ranks.wait()


@contextmanager
def _alone(directory: RunDirectory, ranks: Ranks) -> Iterator[None]:
    if not ranks.is_first:
        yield
        return
    with directory.lock():
        yield


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
