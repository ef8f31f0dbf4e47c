"""InstAParam: a controller chooses the parameters for every image (Chen et al., NeurIPS 2020).

The network's convolutions become super kernels (``super_kernels``); per image a controller
(``controller``) chooses which crops of them are active. Both learn from one trial of branches
(``policy_gradient``): the network by the run's optimizer, the controller by its own Adam
(``auxiliary_optimizer``). When a task ends its controller is stored: the task is tested with it and
the present network. Branches that old tasks used become less probable for later ones. See
docs/methods.md, "InstAParam".

As published: ``--method.regime online --optim.name sgd --optim.lr 1e-3 --optim.momentum 0``, and
``--method.pretrain_epochs 100`` for CIFAR-100 and TinyImageNet.

Shared weights go on moving: only ``ewc`` holds them, by ``(ewc/2) Σ F (w − w*)²``, from the second
task on, with F of ``policy_fisher``. Offline, where tasks have an end, every task adds a term with
its mean F and the weights it ends with. Online there is one term: after each batch its F is added
and w* moved to the present weights (the release's F has no factor B = 10: its strengths are ten
times those here).

GroupNorm has no modes, so the training pass also gives the trial's reward; one more, without
gradient, gives the decision's. On domain streams, where a test image's task is unknown, the present
controller serves all tasks, and the one head is held like other shared weights.

Unlike the release: a pre-trained first task goes on with its controller, so that it can be tested
like others; the controller's fourth stage, for images above 32 pixels, follows a 3 × 3 stem.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.distributed.collectives import is_distributed, sum_over_ranks
from nscl.methods.base import Batch, Lab, Method, Outcome, Phase
from nscl.methods.instaparam.auxiliary_optimizer import AuxiliaryOptimizer
from nscl.methods.instaparam.controller import Controller, bounded, drawn, reuse_penalty, stages_for
from nscl.methods.instaparam.options import InstAParamOptions
from nscl.methods.instaparam.policy_fisher import policy_fisher
from nscl.methods.instaparam.policy_gradient import BranchProbabilities, try_policy
from nscl.methods.instaparam.super_kernels import SuperNet, super_net_like
from nscl.methods.regularization.importance_pass import PassOptions, pass_batches
from nscl.methods.regularization.penalty import QuadraticPenalty, shared_parameters
from nscl.methods.regularization.per_sample_grads import Tensors
from nscl.methods.running_averages import RunningAverages
from nscl.methods.teacher import Weights, weights_of
from nscl.models.heads import TaskModel


class InstAParam(Method):
    """Keeps a controller per task, and how often each branch was used."""

    options_type = InstAParamOptions
    kinds = ("images",)
    tuning: ClassVar = {"ewc": (0.0, 100.0, 1e3, 1e4), "reuse": (0.1, 0.3)}

    def __init__(self, lab: Lab, options: InstAParamOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        channels, *size = lab.stream.image_shape
        stages = stages_for(max(size), options.controller_width)
        self.controller = Controller(
            channels, self.net.choices, side=options.controller_side, stages=stages
        ).to(lab.device)
        self.controller_optimizer = AuxiliaryOptimizer(self.controller, rate=options.controller_lr)
        self.snapshots: dict[int, Weights] = {}
        self.counts = torch.zeros(self.net.choices, dtype=torch.float64)
        self.penalty = QuadraticPenalty()
        self._done, self._averages = 0, RunningAverages()

    @classmethod
    def network(cls, model: TaskModel, options: InstAParamOptions) -> TaskModel:
        """Super kernels in place of the configured backbone, with its stages and widths."""
        kernels, groups = options.kernels, options.groups
        model.backbone = super_net_like(model.backbone, kernels=kernels, groups=groups)
        return model

    @property
    def net(self) -> SuperNet:
        """The backbone, which takes a policy."""
        return cast("SuperNet", self.model.backbone)

    def phases(self, task: int) -> Sequence[Phase]:
        """Training in the configured regime; the first task may be pre-trained."""
        train = Phase(epochs=1, repeats=10, batch_size=10) if self._online else Phase()
        if task or not self.choices.pretrain_epochs:
            return (train,)
        return (Phase("pretrain", epochs=self.choices.pretrain_epochs, batch_size=200), train)

    @property
    def _online(self) -> bool:
        return self.choices.regime == "online"

    def enter_phase(self, task: int, phase: Phase) -> None:
        """Count the steps of a phase from 0."""
        self._done = 0

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The network's; the controller's starts again, once it is known what old tasks used."""
        chosen = self.choices
        self._reuse = reuse_penalty(
            self.counts, strength=chosen.reuse, slope=chosen.reuse_slope, shift=chosen.reuse_shift
        ).to(self.lab.device)
        epoch = self.lab.loader(self.training_split(task), purpose=0, batch_size=phase.batch_size)
        self._length = len(epoch) * phase.repeats * (phase.epochs or self.epochs(task))
        self.controller_optimizer.reset()
        return super().optimizer(task, phase)

    def logits(self, images: Tensor, task: int) -> Tensor:
        """The network's answer with the branches that the controller chooses."""
        return self._answer(images, task, self._decision(images))

    def _decision(self, images: Tensor) -> Tensor:
        decision: Tensor = self.controller(images) >= self.choices.mu
        return decision

    def _answer(self, images: Tensor, task: int, policy: Tensor) -> Tensor:
        logits: Tensor = self.model.head(task)(self.net(images, policy))
        return logits

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Cross-entropy under a trial policy, and the controller's loss from that trial."""
        self.controller_optimizer.zero_grad()
        if phase.name == "pretrain":
            policy = self._random_policy(len(batch.labels))
            return self._outcome(batch, self._answer(batch.images, batch.task, policy))
        wished = self.controller(batch.images)
        p = bounded(wished, alpha=self.choices.alpha, reuse=self._reuse)
        trial = try_policy(
            BranchProbabilities(wished, p, batch.labels, self._done / self._length),
            lambda policy: self._answer(batch.images, batch.task, policy),
            self.choices,
        )
        self._averages.add(len(batch.labels), **trial.figures)
        outcome = self._outcome(batch, trial.logits)
        # One backward pass serves both; the loss that is shown stays the network's own.
        return replace(outcome, loss=outcome.loss + (trial.loss - trial.loss.detach()))

    def _outcome(self, batch: Batch, logits: Tensor) -> Outcome:
        loss = F.cross_entropy(logits, batch.labels)
        if is_distributed():
            # A block that no image of this rank uses must still send its gradient, of zeros.
            loss = loss + sum(0.0 * p.sum() for p in self.net.parameters())
        return Outcome(loss, logits, batch.labels)

    def _random_policy(self, images: int) -> Tensor:
        """All branches in the first half of the phase, then each with 1 falling to 0.5."""
        keep = min(1.0, 1.5 - self._done / self._length)
        return drawn(torch.full((images, *self.net.choices), keep, device=self.lab.device))

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """Pull shared weights back to where old tasks left them; the pull's length is shown."""
        if batch.task and self.penalty.importance:
            shared = shared_parameters(self.lab)
            self.penalty.add_gradient(shared, self.choices.ewc)
            pull = self.penalty.pull(shared, self.choices.ewc)
            self._averages.add(len(batch.labels), pull=pull)

    def after_step(self, batch: Batch, phase: Phase) -> None:
        """Let the controller step too; online, hold the weights once a batch has served."""
        self.controller_optimizer.step(len(batch.labels))
        self._done += 1
        served = self._done % phase.repeats == 0
        if self._online and self.choices.ewc and served and phase.name != "pretrain":
            found = self._fisher(batch.task, [(batch.images, batch.labels)])
            self.penalty.move(found, shared_parameters(self.lab))

    def end_task(self, task: int) -> None:
        """Store the controller, count the branches it chooses, extend the penalty."""
        self.snapshots[task] = weights_of(self.controller)
        split = self.training_split(task)
        used = torch.zeros_like(self.counts)
        for images, _ in self.lab.loader(split, purpose="end", augment="none", shuffle=False):
            with torch.no_grad():
                used += self._decision(images).sum(0).cpu()
        self.counts = self.counts + sum_over_ranks(used)
        if self.choices.ewc and not self._online and task + 1 < self.lab.tasks:
            plain = PassOptions(samples=None, stats_augment=False)
            batches = pass_batches(self.lab, split, task, plain, unit="batch_scaled")
            self.penalty.add(self._fisher(task, batches), shared_parameters(self.lab))

    def _fisher(self, task: int, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensors:
        return policy_fisher(
            self.model,
            batches,
            task=task,
            parameters=shared_parameters(self.lab),
            decide=self._decision,
        )

    @contextmanager
    def evaluating(self, task: int) -> Iterator[None]:
        """Test a task with its own controller, where the task of a test image is known."""
        present = weights_of(self.controller)
        known = self.lab.stream.scenario == "task"
        self.controller.load_state_dict(self.snapshots.get(task, present) if known else present)
        try:
            yield
        finally:
            self.controller.load_state_dict(present)

    def metrics(self) -> dict[str, float]:
        """Share of active branches, rewards, what trials change, and the weight of old use."""
        return {**self._averages.read(), "reuse": float(self._reuse.mean())}

    def state_bytes(self) -> int:
        """Controllers, counts and the penalty."""
        kept = [t for weights in self.snapshots.values() for t in weights.values()]
        return sum(t.nbytes for t in (*kept, self.counts)) + self.penalty.nbytes()

    def task_state(self) -> dict[str, Any]:
        """Controllers, counts and the penalty of the tasks so far."""
        penalty = self.penalty.state_dict()
        return {"snapshots": self.snapshots, "counts": self.counts, "penalty": penalty}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self.snapshots = {int(task): dict(kept) for task, kept in state["snapshots"].items()}
        self.counts = state["counts"]
        self.penalty.load_state_dict(state["penalty"], self.lab.device)

    def epoch_state(self) -> dict[str, Any]:
        """The controller, its moments, the step of the phase, figures; online the penalty."""
        return {
            "controller": weights_of(self.controller),
            "lessons": self.controller_optimizer.state_dict(),
            "done": self._done,
            "meter": self._averages.state_dict(),
            "penalty": self.penalty.state_dict() if self._online else None,
        }

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self.controller.load_state_dict(state["controller"])
        self.controller_optimizer.load_state_dict(state["lessons"])
        self._done = state["done"]
        self._averages.load_state_dict(state["meter"])
        if state["penalty"] is not None:
            self.penalty.load_state_dict(state["penalty"], self.lab.device)
