"""The report of a memory: data first, a readable table when printed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nscl.core.report.advice import advise
from nscl.core.report.layer_table import layer_table
from nscl.core.report.layers import LayerGroup, LayerReport, group_layers, sum_of
from nscl.core.report.statistics import Shift, describe_large_shifts, describe_shifts


@dataclass(frozen=True)
class Report:
    """Per layer: protected how, features, free directions, R; and the protected optimizers."""

    layers: tuple[LayerReport, ...]
    statistics: tuple[Shift, ...]
    optimizers: tuple[str, ...]
    tasks: int
    nbytes: dict[str, int]
    remarks: tuple[str, ...] = ()  # on optimizers; they are among the notes
    rule: Mapping[str, Any] | None = None  # its name and its numbers; None: a projector

    @property
    def total(self) -> LayerReport:
        """All remembered layers as if they were one; R weighs every layer alike."""
        return self._sum("total", self._held())

    @property
    def matrices(self) -> LayerReport:
        """The total of all layers that multiply inputs: everything but embeddings."""
        return self._sum("matrices", [layer for layer in self._held() if not layer.tokens])

    @property
    def embeddings(self) -> LayerReport | None:
        """The total of the embeddings, whose features are tokens; None where there are none."""
        found = [layer for layer in self._held() if layer.tokens]
        return self._sum("embeddings", found) if found else None

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Layers whose names differ only in numbers, the least free first."""
        return group_layers(self.layers)

    @property
    def notes(self) -> tuple[str, ...]:
        """What deserves attention: layers that cannot learn, layers that are not held."""
        notes = [*advise(self.layers, self.rule)]
        if self.tasks and not self.optimizers:
            notes.append("no optimizer is protected: training now would forget")
        return (*notes, *describe_large_shifts(self.statistics), *self.remarks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        written = {name: value for name, value in asdict(self).items() if name != "remarks"}
        embeddings = self.embeddings
        return {
            **written,
            "total": asdict(self.total),
            "matrices": asdict(self.matrices),
            "embeddings": None if embeddings is None else asdict(embeddings),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        protected = ", ".join(self.optimizers) or "no optimizer"
        lines = [f"nscl memory of {self.tasks} task(s), protecting {protected}"]
        lines += layer_table(self.layers, self._totals())
        return "\n".join((*lines, *describe_shifts(self.statistics), *self.notes))

    def _held(self) -> list[LayerReport]:
        return [layer for layer in self.layers if layer.is_held]

    def _totals(self) -> tuple[LayerReport, ...]:
        """One total, or two: many free tokens would hide that hardly a direction is free."""
        embeddings, matrices = self.embeddings, self.matrices
        both = embeddings is not None and matrices.features
        return (embeddings, matrices) if embeddings is not None and both else (self.total,)

    @staticmethod
    def _sum(name: str, layers: list[LayerReport]) -> LayerReport:
        return sum_of(name, f"{len(layers)} layers", layers)
