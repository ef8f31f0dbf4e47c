"""The cost of the training loop and its checkpoints, at the scale of the ``cpu`` preset."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from benchmarks.catalogue import figure
from benchmarks.figure import Figure, at_least, at_most
from benchmarks.timing import Stopwatch
from nscl.data import TaskStream, stream_from_datasets
from nscl.methods.base import Phase
from nscl.results import RunDirectory, fingerprint
from nscl.training.config.build import build_config
from nscl.training.display.tally import Tally
from nscl.training.loop import EpochLoop
from nscl.training.process.device import Ranks
from nscl.training.progress import Journal, RunFigures
from nscl.training.setup import Setup

STEPS = 20
STEPS_OF_AN_EPOCH = 157  # 5,000 images in batches of 32: a task of 10-split CIFAR-100


@dataclass
class Bench:
    """A run on random images, ready to train its first task."""

    setup: Setup
    optimizer: Optimizer
    phase: Phase = field(default_factory=Phase)

    @classmethod
    def build(cls) -> "Bench":
        """A network, loaders and a method as ``nscl run --preset cpu --method finetune`` has."""
        config = build_config("split-cifar100-10", {"preset": "cpu", "method": "finetune"})
        setup = Setup.build(config, Ranks(), stream=_stream(STEPS * config.optim.batch_size))
        setup.model.train()
        setup.method.start_task(0)
        setup.method.enter_phase(0, Phase())
        return cls(setup, setup.method.optimizer(0, Phase()))

    def epoch(self) -> None:
        """All images once, through the laboratory: cut, augmented, normalised, counted."""
        batches = self.setup.loaders(self.setup.stream[0].train, purpose="bench")
        loop = EpochLoop(
            self.setup.method, self.optimizer, 0, self.phase, Ranks(), "fp32", stop=lambda: False
        )
        loop.run(batches)

    def bare_epoch(self) -> Callable[[], None]:
        """The same steps on batches that lie ready."""
        batches = list(self.setup.loaders(self.setup.stream[0].train, purpose="bench"))
        return lambda: _bare(self, batches)


@figure("loop")
def loop(watch: Stopwatch) -> Figure:
    bench, reference = Bench.build(), Bench.build()
    times = watch.race({"ours": bench.epoch, "bare": reference.bare_epoch()})
    seen = STEPS * bench.setup.loaders.config.optim.batch_size
    ours, bare = (seen / times[name].best for name in ("ours", "bare"))
    title = "samples per second: the laboratory's loop ÷ forward, backward and step alone"
    # The rate is better when higher: ours ÷ reference, which a target "at least" turns around.
    return Figure("loop", title, 1e3 / ours, 1e3 / bare, "ms/img", at_least(0.93))


@figure("checkpoint")
def checkpoint(watch: Stopwatch) -> Figure:
    bench = Bench.build()
    epoch = watch.race({"ours": bench.epoch}, share=0.3)["ours"].best / STEPS * STEPS_OF_AN_EPOCH
    with tempfile.TemporaryDirectory() as folder:
        journal = _journal(bench, Path(folder))
        save = watch.race(
            {"ours": lambda: journal.save(RunFigures(), bench.optimizer, Tally())}, share=0.1
        )
        journal.close()
    title = "a checkpoint (write, fsync, rename) ÷ the epoch before it"
    return Figure("checkpoint", title, save["ours"].median, epoch, "s", at_most(0.02))


def _stream(images: int) -> TaskStream:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8, generator=draw)
    data = TensorDataset(pixels, torch.arange(images) % 10)
    return stream_from_datasets(data, data, tasks=1, augment="crop-flip")


def _bare(bench: Bench, batches: list[tuple[Tensor, Tensor]]) -> None:
    for images, labels in batches:
        bench.optimizer.zero_grad()
        F.cross_entropy(bench.setup.model(images, 0), labels).backward()
        bench.optimizer.step()


def _journal(bench: Bench, folder: Path) -> Journal:
    config = bench.setup.loaders.config
    directory = RunDirectory.create(
        folder,
        benchmark="bench",
        method="finetune",
        seed=0,
        config=config.identity(),
        environment=fingerprint(),
    )
    return Journal(directory, bench.setup, writes=True)
