"""Second moments of a wide layer's rows between passes: a sketch in place of the full matrix."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.low_rank import Sketch
from nscl.errors import ModelMismatchError


@dataclass(frozen=True)
class SketchedCovariance(Covariance):
    """What is kept of all rows a wide layer has seen; ``stored`` are the sketch's rows.

    It answers like a full covariance: what the sketch has lost counts as spread evenly over all
    directions (``low_rank.py``).
    """

    lost: Tensor = field(kw_only=True)  # [groups]
    bound: Tensor = field(kw_only=True)  # [groups]
    rank: int = field(kw_only=True)

    @classmethod
    def of(cls, sketch: Sketch, rows: int, tasks: int = 1) -> "SketchedCovariance":
        """A sketch with the number of rows it stands for."""
        return cls(sketch.rows, rows, tasks, lost=sketch.lost, bound=sketch.bound, rank=sketch.rank)

    @property
    def nbytes(self) -> int:
        """Bytes of RAM held between passes."""
        return super().nbytes + self.lost.nbytes + self.bound.nbytes

    @property
    def is_diagonal(self) -> bool:
        """Tokens are counted, never sketched."""
        return False

    @property
    def sketch(self) -> Sketch:
        """The sketch of the sums."""
        rows = self.sums
        return Sketch(rows, self.lost, self.bound, self.rank, rows.shape[-1])

    def mean(self, features: Sequence[int] | None = None) -> Sketch:
        """The sketch of the mean outer product, of some of the features if they are given."""
        sketch = self.sketch.divided(self.rows)
        return sketch if features is None else sketch.restricted(features)

    def dense(self) -> Tensor:
        """Mean outer product ``[groups, d, d]``, written out: for narrow layers, to compare."""
        sketch = self.mean()
        eye = torch.eye(sketch.width, dtype=sketch.rows.dtype, device=sketch.rows.device)
        return sketch.times(eye.expand(len(sketch.rows), -1, -1))

    def diagonal(self) -> Tensor:
        """Mean square of each feature, ``[groups, d]``."""
        return self.mean().diagonal()

    def times(self, matrix: Tensor) -> Tensor:
        """``matrix @ C`` for ``[groups, ·, d]``."""
        return self.mean().times(matrix)

    def plus(self, other: Covariance, *, same_tasks: bool = False) -> "SketchedCovariance":
        """The sketch of both sets of rows together; sketches of one rank only."""
        if not isinstance(other, SketchedCovariance) or other.rank != self.rank:
            raise ModelMismatchError("a sketch can be added to one of the same rank only")
        tasks = max(self.tasks, other.tasks) if same_tasks else self.tasks + other.tasks
        return self.of(self.sketch.plus(other.sketch), self.rows + other.rows, tasks)
