"""A memory and the steps that wait, as one thing that checkpoints save and load.

A checkpoint is made of weights, an optimizer's state and what nscl knows at one moment. Frameworks
collect them one after the other, so nothing may change in between: here nothing is treated, and
steps that ``every`` has left waiting are saved as they are.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from nscl.atomic import replacing
from nscl.core import serialization
from nscl.core.memory import Memory
from nscl.core.protection.step_hooks import Protection
from nscl.errors import MemoryFileError, NsclError

MEMORY_FILE, WAITING_FILE = "memory.safetensors", "memory_waiting.json"
NOTHING: dict[str, Any] = {"steps": 0, "rates": {}}


class Resumable:
    """Has ``state_dict`` and ``load_state_dict``, for whatever saves objects that have them.

    >>> import nscl
    >>> model = nn.Linear(4, 2)
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> memory = nscl.Memory(model)
    >>> resumable = Resumable(memory, memory.protect(optimizer))
    >>> checkpoint = {"model": model, "optimizer": optimizer, "memory": resumable}
    >>> torch.save({name: part.state_dict() for name, part in checkpoint.items()}, "now.pt")
    ... # doctest: +SKIP
    """

    def __init__(self, memory: Memory, *protections: Protection) -> None:
        self.memory = memory
        self.protections = list(protections)
        self._waiting: list[Mapping[str, Any]] = []  # loaded before there was a protection

    def protect(self, optimizers: Sequence[Optimizer]) -> None:
        """Protect these optimizers from now on, instead of those before them."""
        self._waiting = self._all_waiting()
        for protection in self.protections:
            protection.load_state_dict(NOTHING)
            protection.remove()
        self.protections = [self.memory.protect(optimizer) for optimizer in optimizers]
        self._hand_over()

    def state_dict(self) -> dict[str, Any]:
        """The memory, and what waits to be treated in the weights as they are now."""
        return {"memory": self.memory.state_dict(flush=False), "waiting": self._all_waiting()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, with the weights that were saved beside it."""
        self._load(state["memory"], state["waiting"])

    def save(self, folder: str | Path, *, write: bool = True) -> None:
        """Write the memory into a folder; with sharded weights all ranks call this, one writes."""
        target, waiting = Path(folder), self._all_waiting()
        if not write:
            self.memory.state_dict(flush=False)  # takes part in gathering
            return
        self.memory.save(target / MEMORY_FILE, flush=False)
        with replacing(target / WAITING_FILE) as file:
            file.write(json.dumps(waiting).encode())

    def load(self, folder: str | Path) -> None:
        """Go on from a folder that ``save`` has written to."""
        source = Path(folder)
        metadata, tensors = serialization.load(source / MEMORY_FILE)
        try:
            waiting = json.loads((source / WAITING_FILE).read_text())
        except FileNotFoundError:  # a memory that was put there by hand
            waiting = []
        except ValueError as problem:
            raise MemoryFileError(f"{source / WAITING_FILE} cannot be read: {problem}") from problem
        self._load({"metadata": metadata, "tensors": tensors}, waiting)

    def _load(self, memory: Mapping[str, Any], waiting: Sequence[Mapping[str, Any]]) -> None:
        for protection in self.protections:  # what waited was in weights that are gone
            protection.load_state_dict(NOTHING)
        self.memory.load_state_dict(memory)
        self._waiting = list(waiting)
        if self.protections:
            self._hand_over()

    def _all_waiting(self) -> list[Mapping[str, Any]]:
        return self._waiting or [protection.state_dict() for protection in self.protections]

    def _hand_over(self) -> None:
        """Give each protection what was waiting in the checkpoint, in the order of protecting."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) != len(self.protections):
            if not any(state["steps"] for state in waiting):
                return
            raise NsclError(
                f"the checkpoint was saved with {len(waiting)} protected optimizers, and there are "
                f"{len(self.protections)} now: protect the same ones, in the same order"
            )
        for protection, state in zip(self.protections, waiting, strict=True):
            protection.load_state_dict(state)
