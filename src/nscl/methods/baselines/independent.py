"""Independent networks: one per task, all from the same start. No forgetting, no transfer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from nscl.methods.base import Lab, Method, Options


class Independent(Method):
    """BWT is 0 by construction; memory grows by one network per task."""

    tunes_rate = False

    def __init__(self, lab: Lab, options: Options) -> None:
        super().__init__(lab, options)
        self._initial = _copy(lab.model.state_dict())
        self._networks: dict[int, dict[str, Tensor]] = {}

    def is_untrained(self, task: int) -> bool:
        """Every task starts from random weights."""
        return True

    def start_task(self, task: int) -> None:
        """Every task begins with the same random weights."""
        self.model.load_state_dict(self._initial)

    def end_task(self, task: int) -> None:
        """Store the task's network."""
        self._networks[task] = _copy(self.model.state_dict())

    @contextmanager
    def evaluating(self, task: int) -> Iterator[None]:
        """Test a task with its own network."""
        current = _copy(self.model.state_dict())
        self.model.load_state_dict(self._networks.get(task, current))
        try:
            yield
        finally:
            self.model.load_state_dict(current)

    def state_bytes(self) -> int:
        """All stored networks."""
        return sum(t.nbytes for network in self._networks.values() for t in network.values())

    def task_state(self) -> dict[str, Any]:
        """The networks of all tasks so far."""
        return {"networks": self._networks}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._networks = {int(task): dict(network) for task, network in state["networks"].items()}


def _copy(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
