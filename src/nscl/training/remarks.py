"""What a reader must know beside the accuracies: tasks of one class, not learned, or moved away.

A learning rate that is too large leaves a network that predicts one class for everything. Its
accuracy is then the share of the most frequent class, which a table shows like any other number.
Running statistics that move far take old tasks with them, however firmly the weights are held.
"""

import math
from collections.abc import Collection, Sequence

from torch import Tensor

from nscl.core.report.statistics import remark_on_shifts
from nscl.data.tasks import Task, TaskStream
from nscl.metrics import AccuracyMatrix
from nscl.results import AT_CHANCE

DEVIATIONS = 2.0  # of a binomial: what guessing reaches with good luck


def remarks(
    stream: TaskStream,
    accuracy: AccuracyMatrix,
    shifts: Sequence[float | None] = (),
    *,
    strengths: Collection[str] = (),
) -> tuple[str, ...]:
    """Remarks on the finished tasks of a stream, at most one of each kind.

    ``shifts`` are of running statistics, one per task; None where a method measures none.
    ``strengths`` are the method's options that decide how firmly old tasks are held.
    """
    rows = list(enumerate(accuracy.rows))
    of_one_class = [i for i, _ in rows if len(stream[i].classes) == 1]
    # One growing head distinguishes the class of a later task from all earlier ones.
    single = [i for i in of_one_class if i == 0 or stream.scenario != "class"]
    guessed = [i for i, row in rows if i not in of_one_class and _at_chance(stream[i], row[i])]
    texts = (
        (single, "one class only in {}, where 100 % means nothing"),
        (guessed, f"{AT_CHANCE} in {{}}, try {_way_out(guessed, strengths)}"),
    )
    found = tuple(text.format(_share(tasks, len(rows))) for tasks, text in texts if tasks)
    return (*found, *remark_on_shifts(shifts))


def _way_out(guessed: Sequence[int], strengths: Collection[str]) -> str:
    """The first task is learned freely; a later one may also be held too firmly."""
    if not strengths or max(guessed, default=0) == 0:
        return "another learning rate"
    return f"another learning rate or a weaker hold ({', '.join(f'method.{n}' for n in strengths)})"


def chance(labels: Tensor) -> float:
    """The highest accuracy that guessing reaches with some luck, in percent.

    A network that always predicts one of two equally frequent classes is right in half of the
    cases; two standard deviations of 100 draws are ten points.

    >>> import torch
    >>> chance(torch.tensor([0, 1] * 50))
    60.0
    """
    share = float(labels.bincount().max()) / len(labels)
    return 100.0 * (share + DEVIATIONS * math.sqrt(share * (1.0 - share) / len(labels)))


def _at_chance(task: Task, reached: float | None) -> bool:
    return reached is not None and reached <= chance(task.test.labels)


def _share(tasks: Sequence[int], of: int) -> str:
    """``2 of 5 tasks (1, 4)``, counted from one as everywhere in words."""
    return f"{len(tasks)} of {of} tasks ({', '.join(str(i + 1) for i in tasks)})"
