"""What a memory and its protections share: the state now, and what has happened since it changed.

A ``Memory`` makes one ``LiveState`` and hands it to every ``Protection``. Neither of them needs
anything private of the other.
"""

from collections.abc import Sequence

from torch import nn

from nscl.core.distributed.fsdp import reshard
from nscl.core.model.inventory import Inventory, reject_unsupported, take_inventory
from nscl.core.model.unsupported import reject_meta
from nscl.core.state import State, check_model


class LiveState:
    """The state of a memory, the model it belongs to, and the steps since it last changed."""

    def __init__(
        self, model: nn.Module, *, exclude: Sequence[str], allow_unsupported: bool
    ) -> None:
        self.model = model
        self.state = State()
        self.revision = 0  # counts states: the id of one could be given to another later
        self.steps = 0  # protected steps since the last remember
        self.narrowed: set[str] = set()  # blocks projected without all their biases since then
        self.exclude, self._allow_unsupported = exclude, allow_unsupported

    def switch(self, state: State) -> None:
        """Replace the state in one assignment."""
        self.state = state
        self.revision += 1

    def restart(self, *, steps: int = 0) -> None:
        """Count from the weights of the state; ``steps`` may have been taken before."""
        self.steps, self.narrowed = steps, set()

    def inventory(self, *, without_values: bool = False) -> Inventory:
        """The parts of the model now; ``without_values`` also of one on the meta device."""
        reshard(self.model)
        found = take_inventory(self.model, exclude=self.exclude)
        if not without_values:
            reject_meta(found.parameters)
        if not self._allow_unsupported:
            reject_unsupported(found)
        return found

    def checked_inventory(self) -> Inventory:
        """The parts of the model now, which must have all that was remembered."""
        found = self.inventory()
        check_model(self.state, found)
        return found

    def parameters(self) -> dict[str, nn.Parameter]:
        """The model's parameters by qualified name, once it is known to fit the state."""
        return self.checked_inventory().parameters
