"""Avalanche: a plugin that protects a strategy and remembers every experience.

A strategy calls what a plugin has by name, so nothing of Avalanche is imported here.

>>> from nscl.integrations.avalanche import NullSpacePlugin
>>> strategy = Naive(model=model, optimizer=optimizer, plugins=[NullSpacePlugin()])
... # doctest: +SKIP
"""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from nscl.core.memory import Memory
from nscl.core.protection.step_hooks import Protection
from nscl.errors import NsclError


class NullSpacePlugin:
    """Protects the strategy's optimizer, and remembers each experience after its training.

    ``options`` are those of ``nscl.Memory``, which is made of the strategy's model when training
    begins; or hand over a ``memory`` of that model. ``remember`` holds options of
    ``memory.remember``.
    """

    supports_distributed = True  # every rank remembers its part, see nscl.Memory.remember

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        remember: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if memory is not None and options:
            raise TypeError(
                "a memory has its options already, so NullSpacePlugin(memory) takes none of "
                f"{', '.join(sorted(options))}: give them to nscl.Memory"
            )
        self._memory, self._options, self._remember = memory, options, dict(remember or {})
        self._protection: Protection | None = None

    @property
    def memory(self) -> Memory:
        """What is remembered so far."""
        if self._memory is None:
            raise NsclError(
                "NullSpacePlugin makes its memory when the strategy begins to train: ask after "
                "strategy.train(...), or hand one over, NullSpacePlugin(nscl.Memory(model))"
            )
        return self._memory

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """The model has been adapted to the experience, and the optimizer may be another one."""
        if self._memory is None:
            self._memory = Memory(strategy.model, **self._options)
        if self._protection is None or not self._protection.guards(strategy.optimizer):
            if self._protection is not None:
                self._protection.remove()
            self._protection = self._memory.protect(strategy.optimizer)

    def after_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Remember the experience's own data, without what other plugins have mixed in."""
        experience = strategy.experience
        if getattr(experience, "access_task_boundaries", False):  # a part of an online stream
            if not experience.is_last_subexp:
                return
            experience = experience.origin_experience
        data = experience.dataset.eval()
        size = max(strategy.train_mb_size, strategy.eval_mb_size)
        loader = DataLoader(data, size, collate_fn=getattr(data, "collate_fn", None))
        kept = strategy.mbatch
        try:
            self.memory.remember(loader, **{"forward": forward_of(strategy), **self._remember})
        finally:
            strategy.mbatch = kept

    def before_eval(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Weights that are evaluated have no step left to treat."""
        if self._memory is not None:
            self._memory.flush()


def forward_of(strategy: Any) -> Any:
    """The strategy's own way of running a minibatch: models of several tasks take task labels."""

    def forward(model: nn.Module, batch: Any) -> Any:
        strategy.mbatch = batch
        return strategy.forward()

    return forward
