"""The interface of a continual-learning method: a few hooks around one training loop.

The loop owns data, optimizer steps, evaluation and checkpoints; a method says what it adds. Hooks
receive what they need and return what they add; the loop never asks which method it runs. A plain
``Method`` is fine-tuning.

The life of a task, and what survives a kill::

    network(model, options)       once per process, before all tasks
    start_task(t)                 once; then task_state() is saved
    for phase in phases(t):
        enter_phase(t, phase)     once per phase; may change weights
        optimizer(t, phase)       once, and again on every resume
        each step: loss → backward → after_backward → step → after_step
        each epoch: epoch_state() is saved with model and optimizer
        leave_phase(t, phase)
    end_task(t)                   importances, covariances, memories of old samples
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from nscl.data.batches import Batches
from nscl.data.catalogue import Kind
from nscl.data.inputs import Inputs
from nscl.data.tasks import Split, TaskStream
from nscl.errors import NsclError
from nscl.methods.options import Options as Options
from nscl.methods.registry import Stores
from nscl.models.heads import TaskModel


@dataclass(frozen=True)
class Batch:
    """One batch of the task being learned, on the training device.

    ``inputs`` is what the network takes: images, or token ids and attention mask of texts.
    """

    inputs: Inputs
    labels: Tensor
    task: int

    @property
    def images(self) -> Tensor:
        """The inputs of a method that is for pictures only."""
        if not isinstance(self.inputs, Tensor):
            raise NsclError("this batch has no images: its inputs are texts, see batch.inputs")
        return self.inputs


@dataclass(frozen=True)
class Outcome:
    """The result of a step's forward pass: the loss to minimise, and logits for the accuracy."""

    loss: Tensor
    logits: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Phase:
    """A part of a task's training with an optimizer of its own."""

    name: str = "train"
    epochs: int | None = None  # None: as configured
    repeats: int = 1  # steps per batch
    batch_size: int | None = None  # None: as configured
    decays: bool = True  # rates follow the configured schedule; else they stay as they are


class Rates(Protocol):
    """How weights are learned: the optimizer, rates and decay of the three kinds of parameters."""

    @property
    def name(self) -> str:
        """Of the optimizer."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether a step is the rate times the gradient only."""
        ...

    @property
    def weight_decay(self) -> float:
        """Decay of everything but heads."""
        ...

    def backbone_lr(self, task: int) -> float:
        """Rate of weights that all tasks share."""
        ...

    @property
    def heads_lr(self) -> float:
        """Rate of the current task's head."""
        ...

    @property
    def norms_lr(self) -> float:
        """Rate of normalisation layers' scale and shift."""
        ...


@dataclass
class Lab:
    """What a method works with; made by the experiment."""

    model: TaskModel
    stream: TaskStream
    device: torch.device
    rates: Rates
    epochs: int
    seed: int
    make_optimizer: Callable[[Sequence[dict[str, Any]]], Optimizer]
    loader: Callable[..., Batches]  # loader(split, purpose=..., augment=..., shuffle=...)
    data_dir: Path | None = None  # where further data sets are looked for first
    first_epochs: int | None = None  # of untrained weights; as epochs if not given

    @property
    def tasks(self) -> int:
        """Number of tasks in the stream."""
        return len(self.stream)

    def head_group(self, parameters: Iterable[nn.Parameter]) -> dict[str, Any]:
        """A group of an optimizer for heads: a rate of their own, and no weight decay."""
        return {"params": list(parameters), "lr": self.rates.heads_lr, "weight_decay": 0.0}


class Method:
    """Fine-tuning: the base on which every other method adds its few hooks."""

    options_type: ClassVar[type[Options]] = Options
    #: Of "task", "domain" and "class" (one growing head: see docs/methods.md) those it can do.
    scenarios: ClassVar[tuple[str, ...]] = ("task", "domain")
    #: What it can learn from; a method that changes or draws pictures has "images" only.
    kinds: ClassVar[tuple[Kind, ...]] = ("images", "texts")
    #: The one or two options that set the method's strength, and the values `nscl tune` tries.
    tuning: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    #: Whether ``nscl tune`` varies the rate of later tasks too.
    tunes_rate: ClassVar[bool] = True
    #: What a user's own method keeps of old tasks; the registry has it for listed methods.
    stores: ClassVar[Stores] = "parameters"

    def __init__(self, lab: Lab, options: Options) -> None:
        self.lab = lab
        self.options = options

    @property
    def model(self) -> TaskModel:
        """The network being trained."""
        return self.lab.model

    @classmethod
    def network(cls, model: TaskModel, options: Any) -> TaskModel:
        """The network to learn with: the configured one, or one of its size that the method makes.

        Called once, before anything else knows the network; weights are drawn from torch's
        generator, which the run has seeded.
        """
        return model

    @classmethod
    def strengths(cls, options: Any) -> Mapping[str, tuple[float, ...]]:
        """What ``nscl tune`` varies with these options; not an option without effect."""
        return cls.tuning

    def is_untrained(self, task: int) -> bool:
        """Whether a task begins with random weights: the first, or all if each starts again."""
        return task == 0

    def epochs(self, task: int) -> int:
        """Epochs of a task, in phases that have no number of their own."""
        first = self.lab.first_epochs
        return self.lab.epochs if first is None or not self.is_untrained(task) else first

    def training_split(self, task: int) -> Split:
        """The data of a task's epochs."""
        return self.lab.stream[task].train

    def phases(self, task: int) -> Sequence[Phase]:
        """The parts of this task's training, in order."""
        return (Phase(),)

    def start_task(self, task: int) -> None:
        """Prepare for a task, before its first step."""

    def enter_phase(self, task: int, phase: Phase) -> None:
        """Prepare for a phase; not called again when a run resumes within it."""

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """A fresh optimizer for a phase; called again, before its state is loaded, on resume."""
        return self.lab.make_optimizer(self.parameter_groups(task))

    def head_optimizer(self, task: int) -> Optimizer:
        """A fresh optimizer of a task's own head alone: to warm it up."""
        head = [parameter for _, parameter in self.model.head_parameters(task)]
        return self.lab.make_optimizer([self.lab.head_group(head)])

    def parameter_groups(self, task: int) -> list[dict[str, Any]]:
        """Backbone, normalisation layers and what learns of the heads; others are not in it at all.

        A zero gradient would not be enough to keep them: weight decay and momentum move weights
        without one (docs/methods.md, "Notation and protocol").
        """
        rates = self.lab.rates
        rate = rates.backbone_lr(0 if self.is_untrained(task) else task)
        backbone = [p for _, p in self.model.backbone_parameters(norms=False)]
        norms = [p for _, p in self.model.norm_parameters()]
        groups = [
            {"params": backbone, "lr": rate, "weight_decay": rates.weight_decay},
            self.lab.head_group(self.learning_heads(task)),
            {"params": norms, "lr": rates.norms_lr, "weight_decay": rates.weight_decay},
        ]
        return [group for group in groups if group["params"]]

    def learning_heads(self, task: int) -> list[nn.Parameter]:
        """The heads that learn a task: its own, or all rows so far of one growing head."""
        return [p for _, p in self.model.answering_parameters(task)]

    def logits(self, inputs: Any, task: int) -> Tensor:
        """The network's answer to samples of a task."""
        output: Tensor = self.model(inputs, task)
        return output

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Forward pass and loss of one step."""
        logits = self.logits(batch.inputs, batch.task)
        return Outcome(F.cross_entropy(logits, batch.labels), logits, batch.labels)

    def learners(self) -> Sequence[nn.Module]:
        """The networks that steps change: processes of one run keep their buffers equal."""
        return (self.model,)

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """Change gradients before the step."""

    def after_step(self, batch: Batch, phase: Phase) -> None:
        """See what the step did."""

    def leave_phase(self, task: int, phase: Phase) -> None:
        """Finish a phase; may change weights."""

    def end_task(self, task: int) -> None:
        """Keep what later tasks need of this one."""

    @contextmanager
    def evaluating(self, task: int) -> Iterator[None]:
        """Put the network into the state in which a task is tested."""
        yield

    def metrics(self) -> dict[str, float]:
        """Figures that show the method at work, logged after every epoch."""
        return {}

    def notes(self) -> dict[str, Any]:
        """Facts for readers of the results, for example which further images were used."""
        return {}

    def spectra(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """Eigenvalues and weights per layer after ``end_task``, for methods that have them."""
        return {}

    def state_bytes(self) -> int:
        """Bytes kept between tasks: the paper's memory ratio counts these."""
        return 0

    def task_state(self) -> dict[str, Any]:
        """State that changes between tasks only: tensors and plain data."""
        return {}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Restore ``task_state``."""

    def epoch_state(self) -> dict[str, Any]:
        """State that changes within a task."""
        return {}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Restore ``epoch_state``."""

    def close(self) -> None:
        """Remove hooks and close files."""
