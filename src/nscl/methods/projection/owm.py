"""OWM: steps orthogonal to old inputs, softly (Zeng et al., Nature Machine Intelligence 2019).

The projector is ``P = (I + Σ x xᵀ/α)⁻¹`` per layer (docs/methods.md, "OWM"), in two modes:

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

from nscl.core.covariance.covariance import Covariance
from nscl.core.model.block import Block
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.rules import Ridge
from nscl.core.projection.spectrum import Spectrum
from nscl.methods.base import Batch, Lab, Options, Outcome, Phase
from nscl.methods.projection.base import ProjectionMethod, make_memory, unprotected_heads
from nscl.methods.projection.subspaces.recursive_least_squares import Recursion


class OWMOptions(Options):
    """The mode, and how hard the projection is: a small alpha is a hard one."""

    used_with: ClassVar[Mapping[str, str]] = {
        "alpha": "mode task_end",
        "features": "mode task_end",
        "online_alpha": "mode online",
        "conv_decay": "mode online",
        "linear_decay": "mode online",
    }

    mode: Literal["task_end", "online"] = "task_end"
    alpha: PositiveFloat = 0.1  # task_end
    features: Literal["per_sample", "batch_mean"] = "per_sample"  # task_end; online: batch means
    online_alpha: PositiveFloat = 1.0  # online: at a task's beginning
    conv_decay: float = Field(1e-5, gt=0, le=1)  # online: what is left of it at its end
    linear_decay: float = Field(1e-2, gt=0, le=1)
    norms: Literal["ewc", "freeze", "train"] = "ewc"
    stats_augment: bool = True

    def decayed(self, block: Block, progress: float) -> float:
        """Alpha of a layer when this part of a task is over."""
        decay = self.conv_decay if block.kind.startswith("Conv") else self.linear_decay
        return float(self.online_alpha * decay**progress)


class OWM(ProjectionMethod):
    """Without ``mode=online`` there is nothing here but a ``Memory``."""

    options_type = OWMOptions
    scenarios = ("task", "domain", "class")
    tuning: ClassVar = {"alpha": (0.01, 0.1, 1.0)}

    def __init__(self, lab: Lab, options: OWMOptions) -> None:
        self._online = _Online(lab, options) if options.mode == "online" else None
        memory = (
            make_memory(lab, rule=Ridge(options.alpha), norms=options.norms)
            if self._online is None
            else self._online.memory
        )
        super().__init__(lab, options, memory)
        self.choices = options

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
        """The usual optimizer, protected."""
        batches = self.lab.loader(self.training_split(task), purpose="count")
        self._steps = len(batches) * self.epochs(task)
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
        means = self.choices.features == "batch_mean"
        self.remember_task(task, augment=self.choices.stats_augment, batch_mean=means)

    def metrics(self) -> dict[str, float]:
        """Free directions and drift; online, P is at work from the first step on."""
        found = super().metrics()
        if self._online is None:
            return found
        return {"drift": 0.0, **found, "free": self._online.recursion.free()}

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
    """The published mode: P follows every batch. Its state is P and the steps made in a task."""

    def __init__(self, lab: Lab, options: OWMOptions) -> None:
        self.recursion = Recursion(lab.model, exclude=unprotected_heads(lab))
        self.memory = make_memory(
            lab, norms=options.norms, projector=self.project, keep_covariances=False
        )
        self.begin()
        self.follow()

    def project(
        self, block: Block, covariance: Covariance, previous: Projection | None
    ) -> tuple[Projection, Spectrum]:
        """P has seen all of the task's batches already: only the report needs something new."""
        self.recursion.projectors[block.name].mark()
        return self.recursion.projectors[block.name], self.recursion.spectrum(block.name)

    def begin(self) -> None:
        self.steps = 0
        self.recursion.mark()

    def follow(self) -> None:
        """Let the memory project by P itself, from the first step on, not by a copy of it."""
        state = self.memory.state_dict()
        self.memory.load_state_dict({**state, "projections": self.recursion.projectors})

    def take_back(self) -> None:
        """A memory's state has copies of P: load them, and follow P again."""
        saved = self.memory.state_dict()["projections"]
        self.recursion.load({name: kept["basis"] for name, kept in saved.items()})
        self.begin()
        self.follow()

    def state(self) -> dict[str, Any]:
        now = {name: projector.basis for name, projector in self.recursion.projectors.items()}
        return {"projectors": now, "steps": self.steps}

    def load(self, state: Mapping[str, Any]) -> None:
        self.recursion.load(state["projectors"])
        self.steps = int(state["steps"])
