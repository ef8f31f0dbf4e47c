"""InstAParam: a controller chooses the parameters for every image (Chen et al., NeurIPS 2020).

The network's convolutions become super kernels (``super_kernels``); per image a controller
(``controller``) chooses which crops of them are active, and both learn in one step. When a task
ends its controller is put away: the task is tested with it and the present network. Branches that
old tasks used become less probable for later ones. METHODS §10.

Shared weights go on moving: only ``ewc`` holds them, by ``(ewc/2) Σ F (w − w*)²`` with the Fisher
information of batches under their own arg-max labels, taken when a task ends.

GroupNorm has no modes, so the pass that learns also tells the trial's reward; one more, without
gradient, the decision's. On domain streams, where a test image's task is unknown, the present
controller serves all tasks.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.anchors import Anchor, FisherSums, default_loss
from nscl.core.ranks import is_distributed, sum_over_ranks
from nscl.methods.base import Batch, Lab, Method, Outcome, Phase
from nscl.methods.controller import (
    Controller,
    bounded,
    controller_loss,
    drawn,
    entropy,
    reuse_penalty,
    reward,
)
from nscl.methods.former import Weights, weights_of
from nscl.methods.instaparam_options import InstAParamOptions
from nscl.methods.meter import Meter
from nscl.methods.super_kernels import SuperNet, super_net_like
from nscl.models.heads import TaskModel


class InstAParam(Method):
    """Keeps a controller per task, and how often each branch was used."""

    options_type = InstAParamOptions
    tuning: ClassVar = {"ewc": (0.0, 100.0, 1e3, 1e4), "reuse": (0.1, 0.3)}

    def __init__(self, lab: Lab, options: InstAParamOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        width, channels = options.controller_width, lab.stream.image_shape[0]
        self.controller = Controller(
            channels,
            self.net.choices,
            side=options.controller_side,
            stages=(width, 2 * width, 4 * width),
        ).to(lab.device)
        self.snapshots: dict[int, Weights] = {}
        self.counts = torch.zeros(self.net.choices, dtype=torch.float64)
        self.anchors: dict[str, Anchor] = {}
        self._done, self._meter = 0, Meter()

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
        """Training in the regime asked for, in the first task after its pre-training."""
        online = self.choices.regime == "online"
        train = Phase(epochs=1, repeats=10, batch_size=10) if online else Phase()
        if task or not self.choices.pretrain_epochs:
            return (train,)
        return (Phase("pretrain", epochs=self.choices.pretrain_epochs), train)

    def enter_phase(self, task: int, phase: Phase) -> None:
        """Count the steps of a phase from 0."""
        self._done = 0

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The usual optimizer; what old tasks used is known by now, also on resume."""
        chosen = self.choices
        self._reuse = reuse_penalty(
            self.counts, strength=chosen.reuse, slope=chosen.reuse_slope, shift=chosen.reuse_shift
        ).to(self.lab.device)
        epoch = self.lab.loader(self.training_split(task), purpose=0, batch_size=phase.batch_size)
        self._length = len(epoch) * (phase.epochs or self.lab.epochs)
        return super().optimizer(task, phase)

    def parameter_groups(self, task: int) -> list[dict[str, Any]]:
        """The controller learns beside the network, at a rate of its own and without decay."""
        controller = list(self.controller.parameters())
        group = {"params": controller, "lr": self.choices.controller_lr, "weight_decay": 0.0}
        return [*super().parameter_groups(task), group]

    def logits(self, images: Tensor, task: int) -> Tensor:
        """What the network answers with the branches that the controller decides for."""
        return self._answer(images, task, self.controller(images) >= self.choices.mu)

    def _answer(self, images: Tensor, task: int, policy: Tensor) -> Tensor:
        logits: Tensor = self.model.head(task)(self.net(images, policy))
        return logits

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Cross-entropy under a trial policy, and the controller's lesson from that trial."""
        if phase.name == "pretrain":
            return self._learned(batch, self._random_policy(len(batch.labels)))
        chosen, wished = self.choices, self.controller(batch.images)
        p = bounded(wished, alpha=chosen.alpha, reuse=self._reuse)
        trial, decision = drawn(p), wished >= chosen.mu
        outcome = self._learned(batch, trial)
        with torch.no_grad():
            decided = self._answer(batch.images, batch.task, decision)
        earned = self._reward(trial, outcome.logits, batch.labels)
        advantage = earned - self._reward(decision, decided, batch.labels)
        self._note(p, decision, earned, advantage)
        lesson = controller_loss(p, trial, advantage, beta=chosen.beta)
        # One backward pass serves both; the loss that is shown stays the network's own.
        return replace(outcome, loss=outcome.loss + lesson - lesson.detach())

    def _learned(self, batch: Batch, policy: Tensor) -> Outcome:
        logits = self._answer(batch.images, batch.task, policy)
        loss = F.cross_entropy(logits, batch.labels)
        if is_distributed():
            # A block that no image of this rank uses must still send its gradient, of zeros.
            loss = loss + sum(0.0 * p.sum() for p in self.net.parameters())
        return Outcome(loss, logits, batch.labels)

    def _random_policy(self, images: int) -> Tensor:
        """All branches in the first half of the phase, then each with 1 falling to 0.5."""
        keep = min(1.0, 1.5 - self._done / self._length)
        return drawn(torch.full((images, *self.net.choices), keep, device=self.lab.device))

    def _reward(self, policy: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        right, chosen = logits.detach().argmax(1) == labels, self.choices
        return reward(policy, right, gain=chosen.gain, miss=chosen.miss, exponent=chosen.exponent)

    def _note(self, p: Tensor, decision: Tensor, earned: Tensor, advantage: Tensor) -> None:
        self._meter.add(
            len(p),
            active=decision.float().mean(),
            reward=earned.mean(),
            advantage=advantage.abs().mean(),
            entropy=entropy(p.detach()).mean(),
        )

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """Pull shared weights back to where old tasks left them; the pull's length is shown."""
        if not self.anchors:
            return
        pulled = torch.zeros((), device=self.lab.device)
        for name, parameter in self.net.named_parameters():
            pull = self.anchors[name].gradient(parameter.detach(), self.choices.ewc / 2)
            parameter.grad = pull if parameter.grad is None else parameter.grad + pull
            pulled += pull.square().sum()
        self._meter.add(len(batch.labels), pull=pulled.sqrt())

    def after_step(self, batch: Batch, phase: Phase) -> None:
        """Count it."""
        self._done += 1

    def end_task(self, task: int) -> None:
        """Put the controller away, count the branches it decides for, anchor the weights."""
        self.snapshots[task] = weights_of(self.controller)
        used, fisher = torch.zeros_like(self.counts), FisherSums(dict(self.net.named_parameters()))
        split = self.training_split(task)
        for images, _ in self.lab.loader(split, purpose="end", augment="none", shuffle=False):
            with torch.no_grad():
                decision = self.controller(images) >= self.choices.mu
            used += decision.sum(0).cpu()
            if self.choices.ewc and len(images):
                fisher.add(default_loss(self._answer(images, task, decision)), len(images))
        self.counts = self.counts + sum_over_ranks(used)
        if self.choices.ewc:
            self._hold(fisher)

    def _hold(self, fisher: FisherSums) -> None:
        fisher.batches = int(sum_over_ranks(torch.tensor([fisher.batches])))
        fisher.sums = {name: sum_over_ranks(total) for name, total in fisher.sums.items()}
        for name, anchor in fisher.anchors().items():
            old = self.anchors.get(name)
            self.anchors[name] = anchor if old is None else old.plus(anchor)

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
        return {**self._meter.read(), "reuse": float(self._reuse.mean())}

    def state_bytes(self) -> int:
        """Controllers, counts and anchors."""
        kept = [t for weights in self.snapshots.values() for t in weights.values()]
        held = [t for anchor in self.anchors.values() for t in (anchor.fisher, anchor.pull)]
        return sum(t.nbytes for t in (*kept, *held, self.counts))

    def task_state(self) -> dict[str, Any]:
        """Controllers, counts and anchors of the tasks so far."""
        anchors = {name: asdict(anchor) for name, anchor in self.anchors.items()}
        return {"snapshots": self.snapshots, "counts": self.counts, "anchors": anchors}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        self.snapshots = {int(task): dict(kept) for task, kept in state["snapshots"].items()}
        self.counts = state["counts"]
        self.anchors = {name: Anchor(**kept) for name, kept in state["anchors"].items()}

    def epoch_state(self) -> dict[str, Any]:
        """The controller as it is, the step of the phase, the figures."""
        controller = weights_of(self.controller)
        return {"controller": controller, "done": self._done, "meter": self._meter.state_dict()}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.controller.load_state_dict(state["controller"])
        self._done = state["done"]
        self._meter.load_state_dict(state["meter"])
