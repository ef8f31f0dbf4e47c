"""The accuracy matrix of a stream of tasks, and the figures defined on it.

``rows[i][j]`` is the test accuracy in percent on task ``j`` after training on task ``i``; tasks are
counted from 0. ``R`` below is that matrix, ``T`` the number of rows (tasks finished so far):

=====================  =====================================================================
``acc``                mean over j of R[T-1][j]
``bwt``                mean over j < T-1 of R[T-1][j] - R[j][j]; negative means forgetting
``forgetting``         mean over j < T-1 of max over l < T-1 of R[l][j], minus R[T-1][j]
``learning_accuracy``  mean over j of R[j][j]
``fwt(baseline)``      mean over j > 0 of R[j-1][j] - baseline[j]
=====================  =====================================================================

BWT and FWT are those of Lopez-Paz and Ranzato (2017), divided by T - 1 as in the paper (their code
divides by T); forgetting is that of Chaudhry et al. (2018). Every task counts, the first too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import fmean
from typing import Any, Self

from nscl.metrics.errors import MetricError

Row = tuple[float | None, ...]


@dataclass(frozen=True, init=False)
class AccuracyMatrix:
    """Accuracies in percent, one row per finished task; entries above the diagonal may be None.

    A row has at least the tasks trained so far. Tasks not trained yet may follow: a number where
    they were tested, None where not. So a running experiment is a valid matrix.

    >>> matrix = AccuracyMatrix([[80], [85, 90], [75, 88, 70]])
    >>> round(matrix.acc, 3), matrix.bwt, matrix.forgetting, matrix.learning_accuracy
    (77.667, -3.5, 6.0, 80.0)
    """

    rows: tuple[Row, ...]

    def __init__(self, rows: Iterable[Iterable[float | None]] = ()) -> None:
        object.__setattr__(self, "rows", tuple(_row(i, row) for i, row in enumerate(rows)))

    @property
    def tasks(self) -> int:
        """How many tasks have been trained."""
        return len(self.rows)

    @property
    def acc(self) -> float:
        """Average accuracy over all tasks after the last one trained."""
        return self.acc_after(self._last())

    @property
    def bwt(self) -> float:
        """Backward transfer: what later training did to earlier tasks; 0 for one task."""
        last = self._last()
        return _mean(self._at(last, j) - self._at(j, j) for j in range(last))

    @property
    def forgetting(self) -> float:
        """Chaudhry's forgetting: best accuracy before the last task minus the final; 0 for one."""
        last = self._last()
        return _mean(self._best_before(last, j) - self._at(last, j) for j in range(last))

    @property
    def learning_accuracy(self) -> float:
        """Average accuracy of each task right after it was trained: plasticity without memory."""
        return _mean(self._at(j, j) for j in range(self._last() + 1))

    def acc_after(self, task: int) -> float:
        """Average accuracy over tasks 0..task after training on ``task``: a point of the curve."""
        self._known(task)
        return _mean(self._at(task, j) for j in range(task + 1))

    def fwt(self, baseline: Sequence[float]) -> float:
        """Forward transfer against ``baseline[j]``, the untrained network's accuracy on task j.

        Ask for it only where tasks share one head. With a head per task R[j-1][j] is the accuracy
        of a head never trained, so this number is chance. No table has it by default.
        """
        last = self._last()
        if len(baseline) <= last:
            raise MetricError(f"fwt needs a baseline for {last + 1} tasks, got {len(baseline)}")
        return _mean(self._at(j - 1, j) - float(baseline[j]) for j in range(1, last + 1))

    def with_row(self, row: Iterable[float | None]) -> "AccuracyMatrix":
        """Return the matrix after one more task."""
        return AccuracyMatrix((*self.rows, row))

    def prefix(self, tasks: int) -> "AccuracyMatrix":
        """Return the matrix as it was when ``tasks`` tasks had been trained."""
        if not 0 <= tasks <= self.tasks:
            raise MetricError(f"no state after {tasks} tasks: {self.tasks} are trained")
        return AccuracyMatrix(self.rows[:tasks])

    def curve(self, task: int) -> tuple[float, ...]:
        """Accuracy on one task, from right after its own training to the end."""
        self._known(task)
        return tuple(self._at(i, task) for i in range(task, self.tasks))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, ready for JSON; ``from_dict`` returns the same matrix bit for bit."""
        return {"rows": [list(row) for row in self.rows]}

    @classmethod
    def from_dict(cls, record: object) -> Self:
        """Read what ``to_dict`` wrote; anything else is a MetricError."""
        if not isinstance(record, Mapping) or set(record) != {"rows"}:
            raise MetricError(
                f"not an accuracy matrix: expected the one key 'rows', got {record!r}"
            )
        rows = record["rows"]
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise MetricError("not an accuracy matrix: 'rows' must be a list of lists")
        return cls(rows)

    def _last(self) -> int:
        if not self.rows:
            raise MetricError("the accuracy matrix is empty: no task has been trained yet")
        return self.tasks - 1

    def _known(self, task: int) -> None:
        if not 0 <= task < self.tasks:
            raise MetricError(f"task {task} has not been trained: {self.tasks} tasks are, from 0")

    def _at(self, i: int, j: int) -> float:
        row = self.rows[i]
        value = row[j] if j < len(row) else None
        if value is None:
            raise MetricError(f"task {j} was not tested after task {i}: R[{i}][{j}] is missing")
        return value

    def _best_before(self, last: int, j: int) -> float:
        # Chaudhry's max runs over all earlier rows, so tests made before training task j count too.
        return max(v for row in self.rows[:last] if j < len(row) and (v := row[j]) is not None)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return fmean(numbers) if numbers else 0.0


def _row(i: int, row: Iterable[float | None]) -> Row:
    values = tuple(_entry(i, j, value) for j, value in enumerate(row))
    if len(values) <= i:
        raise MetricError(f"row {i} has {len(values)} accuracies: it needs tasks 0..{i}")
    return values


def _entry(i: int, j: int, value: object) -> float | None:
    if value is None and j > i:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise MetricError(f"R[{i}][{j}] must be an accuracy in percent, got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and 0.0 <= number <= 100.0):
        raise MetricError(f"R[{i}][{j}] must be a percentage from 0 to 100, got {number}")
    return number
