"""Joint training: at every task the network learns all tasks so far together.

See docs/methods.md, "Baselines".
"""

from typing import Literal

import torch
import torch.nn.functional as F

from nscl.data.images.files import joined
from nscl.data.tasks import Split
from nscl.methods.base import Batch, Lab, Method, Options, Outcome, Phase
from nscl.methods.old_heads import LearningHeads


class JointOptions(Options):
    """``scratch`` starts again at every task, the usual upper bound; ``continue`` goes on."""

    start: Literal["scratch", "continue"] = "scratch"


class Joint(Method):
    """The upper bound: it keeps all data, so there is nothing to forget.

    A mixed batch sends every sample to its own head; the loss is the mean over samples. To carry
    the task through the loader, classes are numbered consecutively over all tasks.
    Heads learn as one layer: a head without a sample in the batch has a gradient of zero, not None.
    One head for all tasks, growing or not, has nothing to be routed.
    """

    options_type = JointOptions
    tunes_rate = False
    scenarios = ("task", "domain", "class")

    def __init__(self, lab: Lab, options: JointOptions) -> None:
        super().__init__(lab, options)
        self.start = options.start
        sizes = torch.tensor([0, *lab.stream.classes_per_task[:-1]])
        self._offsets = sizes.cumsum(0)
        self._initial = {k: v.clone() for k, v in lab.model.state_dict().items()}
        self._heads = LearningHeads(lab.model)

    def is_untrained(self, task: int) -> bool:
        """Every task, if asked to start from scratch."""
        return task == 0 or self.start == "scratch"

    def start_task(self, task: int) -> None:
        """Forget everything first, if asked to start from scratch."""
        if self.is_untrained(task):
            self.model.load_state_dict(self._initial)

    def training_split(self, task: int) -> Split:
        """Everything up to this task."""
        splits = [self.lab.stream[i].train for i in range(task + 1)]
        labels = [s.labels + self._offset(i) for i, s in enumerate(splits)]
        return joined(splits, torch.cat(labels))

    def state_bytes(self) -> int:
        """The images of all tasks but the last: what it would not have without keeping data."""
        return sum(self.lab.stream[i].train.bytes for i in range(self.lab.tasks - 1))

    def _offset(self, task: int) -> int:
        return int(self._offsets[task]) if self.lab.stream.scenario == "task" else 0

    def parameter_groups(self, task: int) -> list[dict[str, object]]:
        """All heads up to this task learn."""
        groups = super().parameter_groups(task)
        if self.lab.stream.scenario == "task":
            groups[1] = {**groups[1], "params": self._heads.stacked(task + 1).parameters}
        return groups

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Route each sample to its own head; classes of all others are out of its reach."""
        if self.lab.stream.scenario != "task":
            return super().loss(batch, phase)
        features = self.model.backbone(batch.inputs)
        tasks = torch.bucketize(batch.labels, self._offsets.to(batch.labels.device), right=True) - 1
        logits = self._heads.stacked(batch.task + 1).own_logits(features, tasks)
        return Outcome(F.cross_entropy(logits, batch.labels), logits, batch.labels)

    def leave_phase(self, task: int, phase: Phase) -> None:
        """Give the heads their own memory again."""
        self._heads.release()

    def close(self) -> None:
        """Leave an ordinary network behind."""
        self._heads.release()
