"""Builds the parts of a run from its configuration: stream, network, loaders, method."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nscl.data.batches import Batches
from nscl.data.catalogue import StreamRequest
from nscl.data.disk.locate import data_roots
from nscl.data.opening import open_request
from nscl.data.tasks import Split, TaskStream
from nscl.methods.base import Lab, Method
from nscl.models import build_model
from nscl.models.heads import TaskModel
from nscl.models.per_task_statistics import NormStatistics
from nscl.training.config.build import resolved_method
from nscl.training.config.inputs import check_kind
from nscl.training.config.schema import ConfigError, Data, RunConfig
from nscl.training.optimizers import make_optimizer
from nscl.training.process.device import Ranks, choose_device
from nscl.training.process.seeding import generator, seed_all


@dataclass
class Loaders:
    """Batches of a split, drawn from the run's seed, the current task and the purpose."""

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
            # BatchNorm cannot learn from one sample per process; shuffled, those left out differ
            # from epoch to epoch.
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
        """A task's test samples in order, in batches of a fixed size."""
        split = self.stream[task].test
        return self(split, purpose="test", augment="none", shuffle=False, batch_size=256)

    def glimpse(self, task: int) -> Batches:
        """Up to 512 of a task's training samples, evenly over its split, always the same ones."""
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
        stream = _narrowed(_stream(config) if stream is None else stream, config.data)
        device = choose_device(config.device)
        resolved = resolved_method(config)
        kind, options = resolved.kind, resolved.options
        _check_scenario(kind, config, stream)
        check_kind(config, kind, stream.kind)
        seed_all(config.seed, "model")
        model = _placed(kind.network(_model(config, stream), options), config, device)
        loaders = Loaders(config, stream, device, ranks)
        method = kind(_lab(config, model, loaders), options)
        if config.bn_stats == "frozen" and method.is_untrained(1):
            raise ConfigError(
                f"bn_stats=frozen does not go with {config.method!r}, which starts each task with "
                "random weights: their statistics would be frozen; choose shared or per_task"
            )
        return cls(stream, model, NormStatistics(model, config.bn_stats), loaders, method)

    def close(self) -> None:
        """Remove all hooks."""
        self.method.close()
        self.statistics.close()


def _stream(config: RunConfig) -> TaskStream:
    data = config.data
    if data.digest is not None:
        raise ConfigError(
            f"the data of this run ({config.benchmark}) were handed over in Python: continue it "
            "there, with nscl.run(config, stream=...)"
        )
    request = StreamRequest(
        benchmark=config.benchmark,
        data_dir=config.data_dir,
        order=data.order,
        seed=data.order_seed,
        tasks=data.tasks,
        size=data.size,
        scenario=data.scenario,
        max_bytes=data.max_bytes,
        tokenizer=data.tokenizer,
        length=data.length,
    )
    return open_request(request)


def _narrowed(stream: TaskStream, data: Data) -> TaskStream:
    """The first tasks only, and held-out images in place of test images, where asked for."""
    if data.first is not None:
        stream = stream.restrict(data.first)
    return stream if data.holdout is None else stream.hold_out(data.holdout)


def _model(config: RunConfig, stream: TaskStream) -> TaskModel:
    model = config.model
    options: dict[str, Any] = {}
    if model.weights is not None:
        options["weights"] = _found(model.weights, config)
    if model.stem_stride is not None:
        options["stem_stride"] = model.stem_stride
    return build_model(
        model.name,
        image_shape=stream.image_shape if stream.kind == "images" else None,
        text_shape=stream.input_shape if stream.kind == "texts" else None,
        classes_per_task=stream.classes_per_task,
        scenario=stream.scenario,
        width=model.width,
        size=model.size,
        options=options,
    )


def _found(weights: str, config: RunConfig) -> str:
    """The file as it is named, or below the folders where data are looked for."""
    places = [Path(weights).expanduser(), *(r / weights for r in data_roots(config.data_dir))]
    for place in places:
        if place.is_file():
            return str(place)
    raise ConfigError(
        f"option 'model.weights': there is no file {weights}, nor in "
        f"{', '.join(str(place.parent) for place in places[1:])}"
    )


def _placed(model: TaskModel, config: RunConfig, device: torch.device) -> TaskModel:
    if config.model.memory_format == "channels_last":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(device)


def _check_scenario(kind: type[Method], config: RunConfig, stream: TaskStream) -> None:
    if stream.scenario not in kind.scenarios:
        raise ConfigError(
            f"method {config.method!r} is for {', '.join(kind.scenarios)} streams; "
            f"{config.benchmark} is a {stream.scenario} stream here; `nscl list scenarios` names "
            "those that cannot"
        )
    if stream.scenario == "class" and config.bn_stats == "per_task":
        raise ConfigError(
            "bn_stats=per_task tests each task with its own statistics, but one growing head is "
            "tested without knowing the task: choose shared or frozen"
        )


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
        first_epochs=config.optim.first_epochs,
    )
