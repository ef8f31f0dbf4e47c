"""Running statistics over tasks: shared by all, frozen after the first, or one set per task.

Null-space methods protect the outputs of convolutions, but not the normalisation that follows.
Shared statistics change with every task, and part of the reported forgetting is theirs. Three
modes:

==========  ====================================================================================
shared      nothing is done: every task updates the one set (the published protocol)
frozen      after the first task the layers normalise with its statistics, in training too;
            scale and shift go on learning
per_task    each task ends with a set of its own, used whenever that task is tested; a new task
            starts from the set of the task before it
==========  ====================================================================================
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from torch import Tensor, nn

from nscl.core.norms.running_stats import Holding
from nscl.messages import did_you_mean
from nscl.models.errors import ModelError
from nscl.models.norms import (
    LayerStatistics,
    check_statistics,
    copy_statistics,
    layers_with_statistics,
    set_statistics,
)

MODES = ("shared", "frozen", "per_task")


class NormStatistics:
    """Manage the running statistics of ``model`` over tasks; ``close`` it or use ``with``.

    ``mode`` is "shared", "frozen" or "per_task". The last two need layers with running statistics,
    BatchNorm for one. Tasks are counted from 0.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    >>> with NormStatistics(model, "per_task") as statistics:
    ...     for task in range(2):
    ...         statistics.start_task(task)
    ...         # train on the task, then:
    ...         statistics.end_task(task)
    ...     with statistics.for_task(0):
    ...         pass  # test task 0 here
    """

    def __init__(self, model: nn.Module, mode: str = "shared") -> None:
        if mode not in MODES:
            raise ModelError(
                f"there is no bn_stats {mode!r}{did_you_mean(mode, MODES)}; "
                f"choose {', '.join(MODES)}"
            )
        self.mode = mode
        self._layers = layers_with_statistics(model)
        if mode != "shared" and not self._layers:
            raise ModelError(
                f"bn_stats={mode} would change nothing: no layer of this {type(model).__name__} "
                "keeps running statistics; choose shared"
            )
        self._tasks: dict[int, dict[str, LayerStatistics]] = {}
        self._last: int | None = None
        self._holding = Holding()
        self._closed = False

    @property
    def frozen(self) -> bool:
        """Whether the layers now normalise with remembered statistics, also in training."""
        return bool(self._holding)

    def start_task(self, task: int) -> None:
        """Begin training on ``task``; not to be called again when a task is resumed half-way."""
        self._check_open(task)
        if self.mode == "per_task" and self._last is not None:
            set_statistics(self._layers, self._tasks[self._last])

    def end_task(self, task: int) -> None:
        """Training on ``task`` is over: remember its statistics, or freeze them from now on."""
        self._check_open(task)
        self._last = task
        if self.mode == "per_task":
            self._tasks[task] = copy_statistics(self._layers)
        elif self.mode == "frozen":
            self._freeze()

    @contextmanager
    def for_task(self, task: int) -> Iterator[None]:
        """Test ``task`` inside this block with its own statistics; then restore the current ones.

        A task that has not ended yet, and every task in the other modes, is tested with the current
        statistics. Do not train inside: the statistics that the layers collect there are lost.
        """
        self._check_open(task)
        if task not in self._tasks:
            yield
            return
        current = copy_statistics(self._layers)
        set_statistics(self._layers, self._tasks[task])
        try:
            yield
        finally:
            set_statistics(self._layers, current)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue, as tensors and plain values, without the model's own."""
        return {
            "mode": self.mode,
            "last": self._last,
            "tasks": {
                task: {name: _clones(kept) for name, kept in layers.items()}
                for task, layers in self._tasks.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``; what does not fit is refused and changes nothing."""
        mode, last, tasks = _parts(state)
        if mode != self.mode:
            raise ModelError(f"the state is of bn_stats={mode}, this run has bn_stats={self.mode}")
        self._check_open(last or 0)
        for task, layers in tasks.items():
            check_statistics(self._layers, layers, place=f"the statistics of task {task}")
        if mode == "per_task" and last is not None and last not in tasks:
            raise ModelError(f"the state ends with task {last} but has no statistics of it")
        self._tasks = {
            task: {name: _clones(kept) for name, kept in layers.items()}
            for task, layers in tasks.items()
        }
        self._last = last
        if mode == "frozen" and last is not None:
            self._freeze()
        else:
            self._holding.release()

    def close(self) -> None:
        """Take every hook off the model again; closing twice is harmless."""
        self._holding.release()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _freeze(self) -> None:
        # Copies of the model, such as a teacher, normalise as the model itself does.
        self._holding.take(self._layers, lambda _: True, copies=True)

    def _check_open(self, task: int) -> None:
        if self._closed:
            raise ModelError("these norm statistics are closed: make new ones for the model")
        if type(task) is not int or task < 0:
            raise ModelError(f"tasks are counted from 0, got {task!r}")


def _clones(kept: Mapping[str, Tensor]) -> LayerStatistics:
    return {buffer: tensor.clone() for buffer, tensor in kept.items()}


def _parts(state: Mapping[str, Any]) -> tuple[str, int | None, Mapping[int, Any]]:
    try:
        return state["mode"], state["last"], state["tasks"]
    except (KeyError, TypeError) as error:
        raise ModelError(f"not the state of norm statistics: {error} is missing") from None
