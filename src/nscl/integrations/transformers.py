"""The ``Trainer`` of transformers: a callback that protects, saves, resumes and remembers.

>>> from nscl.integrations.transformers import KeepMemory
>>> trainer = Trainer(..., callbacks=[KeepMemory(memory)])  # doctest: +SKIP
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from nscl.core.distributed.fsdp import is_sharded
from nscl.core.memory import Memory
from nscl.core.model.inventory import unwrap
from nscl.errors import NsclError
from nscl.integrations.resumable import MEMORY_FILE, Resumable


class KeepMemory(TrainerCallback):
    """Protects the Trainer's optimizer and keeps the memory in every checkpoint.

    ``remember``: what to add to the memory at the end. ``True`` is the training data; a data set
    goes through the Trainer's own collator; a ``DataLoader`` is taken as it is. ``resume_from``:
    a checkpoint that is not in ``output_dir``. ``options`` are those of ``memory.remember``.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        remember: bool | Dataset[Any] | DataLoader[Any] = False,
        resume_from: str | Path | None = None,
        **options: Any,
    ) -> None:
        self.memory, self.resumable = memory, Resumable(memory)
        self._remember, self._resume_from, self._options = remember, resume_from, options

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The optimizer exists now, and a checkpoint has been loaded."""
        if args.save_strategy != "no" and self.memory.projector is not None:
            raise NsclError(
                "a memory with a projector cannot be saved in checkpoints: use a rule, or "
                'TrainingArguments(save_strategy="no")'
            )
        if state.global_step > 0:  # its memory knows the adapters already
            self.resumable.load(self._checkpoint(args, state))
        else:
            prepare_adapters(kwargs["model"], self.memory)
        self.resumable.protect([kwargs["optimizer"]])

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Weights that are evaluated, saved or final have no step left to treat."""
        if control.should_evaluate or control.should_save or control.should_training_stop:
            self.memory.flush()

    on_epoch_end = on_step_end

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Put the memory beside the weights."""
        if args.should_save or any(map(is_sharded, self.memory.model.parameters())):
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.resumable.save(folder, write=args.should_save)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remember what was asked for, with the weights that the Trainer leaves."""
        if self._remember is not False:
            data = batches_of(self._remember, kwargs["train_dataloader"], args)
            self.memory.remember(data, **self._options)

    def _checkpoint(self, args: TrainingArguments, state: TrainerState) -> Path:
        """The folder that training resumes from: callbacks get its step, but not its name."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self._resume_from is not None:
            return Path(self._resume_from)
        try:
            written = json.loads((folder / "trainer_state.json").read_text())
        except FileNotFoundError:
            written = {}
        if written.get("log_history") != state.log_history or not (folder / MEMORY_FILE).exists():
            raise NsclError(
                f"training resumes at step {state.global_step}, and {folder} has no {MEMORY_FILE} "
                "of this run: KeepMemory(memory, resume_from=PATH) says where the checkpoint is"
            )
        return folder


def prepare_adapters(model: nn.Module, memory: Memory) -> None:
    """Let the adapters of a PEFT model begin where old inputs do not reach them."""
    peft = sys.modules.get("peft")
    if peft is None or not isinstance(unwrap(model), peft.PeftModel) or not memory.tasks:
        return
    importlib.import_module("nscl.integrations.peft").prepare(unwrap(model), memory)


def batches_of(data: Any, trained_on: Any, args: TrainingArguments) -> Any:
    """Batches as the Trainer makes them, but in order: its collator, its size, a rank's part."""
    data = trained_on.dataset if data is True else data
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        return trained_on if data is trained_on.dataset else data
    names = getattr(trained_on.dataset, "column_names", None)
    if names is not None and hasattr(data, "select_columns"):  # what the Trainer has dropped
        data = data.select_columns([name for name in data.column_names if name in names])
    mine = Subset(data, range(args.process_index, len(data), args.world_size))
    return DataLoader(mine, args.per_device_train_batch_size, collate_fn=trained_on.collate_fn)
