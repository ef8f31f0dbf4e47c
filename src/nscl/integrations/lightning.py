"""Lightning: a callback that protects, saves, resumes and remembers.

>>> from nscl.integrations.lightning import KeepMemory
>>> trainer = Trainer(..., callbacks=[KeepMemory(memory)])  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from nscl.core.memory import Memory
from nscl.integrations.resumable import Resumable

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class KeepMemory(Callback):
    """Protects the Trainer's optimizers and keeps the memory in every checkpoint.

    ``remember``: what to add to the memory when training ends. ``True`` is the training data.
    Further options are those of ``memory.remember``.
    """

    def __init__(
        self, memory: Memory, *, remember: bool | DataLoader[Any] = False, **options: Any
    ) -> None:
        self.memory, self.resumable = memory, Resumable(memory)
        self._remember, self._options = remember, options

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """The optimizers exist now. Those of other models, say of a critic, are left alone."""
        mine = {id(p) for p in self.memory.model.parameters()}
        ours = [
            optimizer
            for optimizer in trainer.optimizers
            if any(id(p) in mine for group in optimizer.param_groups for p in group["params"])
        ]
        self.resumable.protect(ours or trainer.optimizers)  # none: an error that says why

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Weights that are evaluated have no step left to treat."""
        self.memory.flush()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Nor have those that an epoch ends with: they are saved next."""
        self.memory.flush()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Remember what was asked for, with the weights that training leaves."""
        self.memory.flush()
        if self._remember is not False:
            data = trainer.train_dataloader if self._remember is True else self._remember
            self.memory.remember(data, **self._options)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of the memory."""
        return self.resumable.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.resumable.load_state_dict(state_dict)
