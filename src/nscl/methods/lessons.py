"""The controller's own optimizer: Adam at a constant rate, beside whatever trains the network.

METHODS §10 trains the network by SGD and the controller by Adam. The run's optimizer and its
schedule are the network's; what the controller learns with must neither follow a change of that
optimizer nor fade with its milestones.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Adam

from nscl.core.ranks import is_distributed, sum_over_ranks


class Lessons:
    """Steps of one module by its own Adam, which a run can save and take up again.

    >>> pupil = nn.Linear(1, 1)
    >>> before, lessons = pupil.weight.item(), Lessons(pupil, rate=0.5)
    >>> pupil(torch.ones(1, 1)).sum().backward()
    >>> lessons.step(samples=1)
    >>> round(before - pupil.weight.item(), 3)
    0.5
    """

    def __init__(self, pupil: nn.Module, *, rate: float) -> None:
        self.pupil, self.rate = pupil, rate
        self.begin()

    def begin(self) -> None:
        """Forget all moments, as every optimizer does at a phase's beginning."""
        self._adam = Adam(self.pupil.parameters(), lr=self.rate)

    def clear(self) -> None:
        """Forget gradients; without new ones a step does nothing."""
        self._adam.zero_grad()

    def step(self, samples: int) -> None:
        """Step by the gradients there are, means over this process's ``samples`` images."""
        self._share(samples)
        self._adam.step()

    def _share(self, samples: int) -> None:
        """The loop makes gradients those of all ranks' images for its own optimizer only."""
        if not is_distributed():
            return
        share = samples / float(sum_over_ranks(torch.tensor([float(samples)])))
        for parameter in self.pupil.parameters():
            if parameter.grad is not None:
                mine = parameter.grad * share
                parameter.grad = sum_over_ranks(mine).to(mine.device)

    def state_dict(self) -> dict[str, Any]:
        """Moments and rate."""
        return self._adam.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take ``state_dict`` back."""
        self._adam.load_state_dict(dict(state))
