"""The parts a run is made of, from its configuration: stream, network, loaders, method."""

from dataclasses import dataclass

import torch

from nscl.data import open_stream
from nscl.data.batches import Batches
from nscl.data.tasks import Split, TaskStream
from nscl.methods.base import Lab, Method
from nscl.methods.registry import load_method
from nscl.models import build_model
from nscl.models.heads import TaskModel
from nscl.models.per_task_statistics import NormStatistics
from nscl.training.config import ConfigError, RunConfig, validated
from nscl.training.device import Ranks, choose_device
from nscl.training.optimizers import make_optimizer
from nscl.training.seeding import generator, seed_all


@dataclass
class Loaders:
    """Batches of a split, drawn from the run's seed, the task at hand and the purpose."""

    config: RunConfig
    stream: TaskStream
    device: torch.device
    ranks: Ranks
    task: int = 0

    def __call__(
        self,
        split: Split,
        *,
        purpose: object,
        augment: str | None = None,
        shuffle: bool = True,
        batch_size: int | None = None,
    ) -> Batches:
        """Make a loader; every rank gets its part of each batch."""
        chosen = self.config.data.augment if augment is None else augment
        size = batch_size or self.config.optim.batch_size
        rest = len(split) % size
        return Batches(
            split,
            batch_size=size,
            # BatchNorm cannot learn from one sample per process; shuffled, those left out are
            # others every epoch.
            drop_last=shuffle and len(split) > size and 0 < rest < 2 * self.ranks.count,
            mean=self.stream.mean,
            std=self.stream.std,
            generator=generator(self.config.seed, "batches", self.task, purpose),
            shuffle=shuffle,
            augment=self.stream.augment if chosen == "default" else chosen,  # type: ignore[arg-type]
            device=self.device,
            shard=(self.ranks.rank, self.ranks.count),
        )

    def test(self, task: int) -> Batches:
        """A task's test images in order, in batches of a fixed size."""
        split = self.stream[task].test
        return self(split, purpose="test", augment="none", shuffle=False, batch_size=256)

    def glimpse(self, task: int) -> Batches:
        """Up to 512 of a task's training images, evenly over its split, always the same ones."""
        split = self.stream[task].train
        if len(split) > 512:
            split = split.select(torch.arange(512) * len(split) // 512)
        return self(split, purpose="glimpse", augment="none", shuffle=False, batch_size=256)


@dataclass
class Setup:
    """Everything that is built before the first step."""

    stream: TaskStream
    model: TaskModel
    statistics: NormStatistics
    loaders: Loaders
    method: Method

    @classmethod
    def build(cls, config: RunConfig, ranks: Ranks, *, stream: TaskStream | None = None) -> "Setup":
        """Build all parts; data, network and options are checked here, before files are made."""
        stream = _stream(config) if stream is None else _first(stream, config)
        device = choose_device(config.device)
        kind = _method_type(config, stream)
        options = validated(kind.options_type, config.options, where="method.")
        seed_all(config.seed, "model")
        model = _placed(kind.network(_model(config, stream), options), config, device)
        loaders = Loaders(config, stream, device, ranks)
        method = kind(_lab(config, model, loaders), options)
        if config.bn_stats == "frozen" and method.is_untrained(1):
            raise ConfigError(
                f"bn_stats=frozen does not go with {config.method!r}, which starts each task anew: "
                "the statistics held would be those of random weights; choose shared or per_task"
            )
        return cls(stream, model, NormStatistics(model, config.bn_stats), loaders, method)

    def close(self) -> None:
        """Give up hooks."""
        self.method.close()
        self.statistics.close()


def _stream(config: RunConfig) -> TaskStream:
    data = config.data
    if data.digest is not None:
        raise ConfigError(
            f"the data of this run ({config.benchmark}) were handed over in Python: continue it "
            "there, with nscl.run(config, stream=...)"
        )
    stream = open_stream(
        config.benchmark,
        data_dir=config.data_dir,
        order=data.order,
        seed=data.order_seed,
        tasks=data.tasks,
        size=data.size,
        scenario=data.scenario,
        max_bytes=data.max_bytes,
    )
    return _first(stream, config)


def _first(stream: TaskStream, config: RunConfig) -> TaskStream:
    return stream if config.data.first is None else stream.restrict(config.data.first)


def _model(config: RunConfig, stream: TaskStream) -> TaskModel:
    return build_model(
        config.model.name,
        image_shape=stream.image_shape,
        classes_per_task=stream.classes_per_task,
        scenario=stream.scenario,
        width=config.model.width,
    )


def _placed(model: TaskModel, config: RunConfig, device: torch.device) -> TaskModel:
    if config.model.memory_format == "channels_last":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(device)


def _method_type(config: RunConfig, stream: TaskStream) -> type[Method]:
    kind = load_method(config.method)
    if stream.scenario not in kind.scenarios:
        raise ConfigError(
            f"method {config.method!r} is for {', '.join(kind.scenarios)} streams; "
            f"{config.benchmark} is a {stream.scenario} stream"
        )
    return kind


def _lab(config: RunConfig, model: TaskModel, loaders: Loaders) -> Lab:
    return Lab(
        model=model,
        stream=loaders.stream,
        device=loaders.device,
        rates=config.optim,
        epochs=config.optim.epochs,
        seed=config.seed,
        make_optimizer=lambda groups: make_optimizer(config.optim, groups),
        loader=loaders,
        data_dir=config.data_dir,
    )
