"""The controller's own optimizer: Adam at a constant rate, beside the optimizer of the run.

InstAParam trains the network by SGD and the controller by Adam (docs/methods.md, "InstAParam"). The
run's optimizer and its schedule belong to the network. The controller's rate must not change with
that optimizer, nor decay at its milestones.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Adam

from nscl.core.distributed.collectives import is_distributed, sum_over_ranks


class AuxiliaryOptimizer:
    """Steps of one module by its own Adam, saved and restored with the run.

    >>> module = nn.Linear(1, 1)
    >>> before, optimizer = module.weight.item(), AuxiliaryOptimizer(module, rate=0.5)
    >>> module(torch.ones(1, 1)).sum().backward()
    >>> optimizer.step(samples=1)
    >>> round(before - module.weight.item(), 3)
    0.5
    """

    def __init__(self, module: nn.Module, *, rate: float) -> None:
        self.module, self.rate = module, rate
        self.reset()

    def reset(self) -> None:
        """Forget all moments, as every optimizer does at the start of a phase."""
        self._adam = Adam(self.module.parameters(), lr=self.rate)

    def zero_grad(self) -> None:
        """Forget gradients; without new ones a step does nothing."""
        self._adam.zero_grad()

    def step(self, samples: int) -> None:
        """Step by the present gradients, which are means over this process's ``samples`` images."""
        self._average_gradients(samples)
        self._adam.step()

    def _average_gradients(self, samples: int) -> None:
        """Means over the images of all ranks: the loop averages for its own optimizer only."""
        if not is_distributed():
            return
        share = samples / float(sum_over_ranks(torch.tensor([float(samples)])))
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                mine = parameter.grad * share
                parameter.grad = sum_over_ranks(mine).to(mine.device)

    def state_dict(self) -> dict[str, Any]:
        """Moments and rate."""
        return self._adam.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""
        self._adam.load_state_dict(dict(state))
