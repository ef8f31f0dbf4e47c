"""OWM: steps orthogonal to old inputs, softly (Zeng et al., Nature Machine Intelligence 2019).

The projector is ``P = (I + Σ x xᵀ/α)⁻¹`` per layer (METHODS §15), in two modes:

- ``task_end``: after each task, from the second moments of its inputs. That is ``nscl.Memory`` with
  the rule ``Ridge``: its alpha is α in units of the mean energy of a direction, per row and task.
- ``online``, as published: P takes in the mean input of every batch, the current task's too, before
  it projects that batch's step; learning slows down within a task. α falls geometrically
  over a task, from ``online_alpha`` to that times ``conv_decay`` (or ``linear_decay``).

The original projects gradients, then adds momentum; here the optimizer's update is projected, so
that momentum and Adam's scaling do not leave the directions that P leaves open. Heads of their own
need no projection; normalisation layers, which the original has none of, are held as in Adam-NSCL.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat
from torch.optim import Optimizer

from nscl.core.blocks import Block
from nscl.core.memory import Memory
from nscl.core.rules import Ridge
from nscl.core.steered import Steered
from nscl.methods.base import Batch, Lab, Options, Outcome, Phase
from nscl.methods.guarded import Guarded, through_head, unguarded
from nscl.methods.recursive import Dense, Recursion

_MODE_OF = {
    "alpha": "task_end",
    "features": "task_end",
    "online_alpha": "online",
    "conv_decay": "online",
    "linear_decay": "online",
}


class OWMOptions(Options):
    """The mode, and how hard the projection is: a small alpha is a hard one."""

    mode: Literal["task_end", "online"] = "task_end"
    alpha: PositiveFloat = 0.1  # task_end
    features: Literal["per_sample", "batch_mean"] = "per_sample"  # task_end; online: batch means
    online_alpha: PositiveFloat = 1.0  # online: at a task's beginning
    conv_decay: float = Field(1e-5, gt=0, le=1)  # online: what is left of it at its end
    linear_decay: float = Field(1e-2, gt=0, le=1)
    norms: Literal["ewc", "freeze", "train"] = "ewc"
    stats_augment: bool = True

    def unread(self) -> Mapping[str, str]:
        """The numbers of the other mode."""
        return {name: f"mode {mode}" for name, mode in _MODE_OF.items() if mode != self.mode}

    def decayed(self, block: Block, progress: float) -> float:
        """Alpha of a layer when this part of a task is over."""
        decay = self.conv_decay if block.kind.startswith("Conv") else self.linear_decay
        return float(self.online_alpha * decay**progress)


class OWM(Guarded):
    """Without ``mode=online`` there is nothing here but a ``Memory``."""

    options_type = OWMOptions
    tuning: ClassVar = {"alpha": (0.001, 0.01, 0.1, 1.0, 10.0)}

    def __init__(self, lab: Lab, options: OWMOptions) -> None:
        exclude = unguarded(lab)
        memory = (
            Memory(lab.model, rule=Ridge(options.alpha), norms=options.norms, exclude=exclude)
            if options.mode == "task_end"
            else Steered(lab.model, norms=options.norms, exclude=exclude)
        )
        super().__init__(lab, options, memory)
        self.choices = options
        self._online = _Online(memory, exclude) if isinstance(memory, Steered) else None

    @classmethod
    def strengths(cls, options: OWMOptions) -> Mapping[str, tuple[float, ...]]:
        """``alpha`` is of ``task_end``; online, the same values are where alpha begins."""
        online = options.mode == "online"
        return {"online_alpha": cls.tuning["alpha"]} if online else cls.tuning

    def start_task(self, task: int) -> None:
        """Progress is counted per task."""
        if self._online is not None:
            self._online.begin()

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The usual optimizer, guarded."""
        batches = self.lab.loader(self.training_split(task), purpose="count")
        self._steps = len(batches) * self.lab.epochs
        return super().optimizer(task, phase)

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """The usual loss; online, the layers' inputs are noted on the way."""
        if self._online is None:
            return super().loss(batch, phase)
        with self._online.recursion.watching():
            return super().loss(batch, phase)

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """Online, P takes in this batch before it projects its step."""
        if self._online is not None:
            progress = self._online.steps / self._steps
            self._online.steps += 1
            self._online.recursion.update(
                len(batch.labels), lambda block: self.choices.decayed(block, progress)
            )

    def end_task(self, task: int) -> None:
        """Remember the task's inputs; online, only norm layers and weights still need it."""
        if not self.is_last(task):
            self.memory.remember(
                self.batches(task, augment=self.choices.stats_augment),
                forward=through_head(task),
                batch_mean=self.choices.features == "batch_mean",
            )
            if self._online is not None:
                self._online.tell()

    def metrics(self) -> dict[str, float]:
        """Free directions and drift; online, P is at work from the first step on."""
        if self._online is None:
            return super().metrics()
        return {**super().metrics(), **self._online.metrics()}

    def task_state(self) -> dict[str, Any]:
        """The memory; online, with P as it is when the task begins."""
        return self.memory.state_dict() if self._online is not None else super().task_state()

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Take the memory back."""
        super().load_task_state(state)
        if self._online is not None:
            self._online.take_back()

    def epoch_state(self) -> dict[str, Any]:
        """P as it is now, and how far the task has come."""
        return {} if self._online is None else self._online.state()

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        if self._online is not None:
            self._online.load(state)


class _Online:
    """The published mode's state: P now, P at the task's beginning, steps made."""

    def __init__(self, memory: Steered, exclude: tuple[str, ...]) -> None:
        self.memory = memory
        self.recursion = Recursion(memory.model, exclude=exclude)
        self.start: dict[str, Dense] = {}
        self.begin()
        self.memory.steer(self.recursion.projectors)

    def begin(self) -> None:
        self.steps, self.start = 0, self.recursion.copies()

    def tell(self) -> None:
        """Say in the memory's report what P leaves free."""
        self.memory.steer(self.recursion.projectors, self.recursion.spectra())

    def metrics(self) -> dict[str, float]:
        drift = self.memory.movement(self.start).total.relative if self.memory.tasks else 0.0
        return {"free": self.recursion.free(), "drift": drift}

    def take_back(self) -> None:
        """A memory's state has P as a plain basis: copy it and steer by the live ones again."""
        self.recursion.load({n: p.basis for n, p in self.memory.projections.items()})
        self.begin()
        self.memory.steer(self.recursion.projectors)

    def state(self) -> dict[str, Any]:
        now = {name: projector.basis for name, projector in self.recursion.projectors.items()}
        return {"projectors": now, "steps": self.steps}

    def load(self, state: Mapping[str, Any]) -> None:
        self.recursion.load(state["projectors"])
        self.steps = int(state["steps"])
