"""EWC: parameters are held as firmly as the Fisher information of old tasks says.

Elastic Weight Consolidation (Kirkpatrick et al., PNAS 2017; online form: Schwarz et al., ICML
2018); docs/methods.md, "EWC"::

    separate   CE + strength/2 · Σ_s Σ_i F_s,i (w_i − w*_s,i)²      a penalty per old task s
    online     CE + strength/2 · Σ_i F_i (w_i − w*_i)²              F ← γF + F_t, w* the latest

Both keep two tensors per parameter, however many tasks there are. They are different methods even
with γ = 1: Fisher 1 at 0 and 3 at 2 balance at 1.5, the online form stands at 2.

Strengths of code without the factor ½ are doubled here; they mean something only together with
the estimator, whose scales differ by orders of magnitude. The default ``sketched`` is on the scale
of ``true``: unbiased, for one backward pass per sample instead of one per class (``fisher.py``).
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from nscl.methods.regularization.fisher import SINGLE, Estimator, fisher
from nscl.methods.regularization.importance_pass import ImportanceMethod, ImportanceOptions
from nscl.methods.regularization.per_sample_grads import Unit


class EWCOptions(ImportanceOptions):
    """Strength, form, and how the Fisher information is estimated."""

    used_with: ClassVar[Mapping[str, str]] = {"gamma": "form online"}

    strength: PositiveFloat = 1e4
    estimator: Estimator = "sketched"
    unit: Unit = "sample"  # whose gradient is squared; batch_scaled is Adam-NSCL's B·mean²
    form: Literal["separate", "online"] = "separate"
    gamma: float = Field(1.0, ge=0, le=1)  # online: what is kept of older tasks' Fisher

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.estimator in SINGLE and self.unit != "sample":
            raise ValueError(
                f"estimator {self.estimator} needs unit sample; it has no form for whole batches"
            )
        return self


class EWC(ImportanceMethod[EWCOptions]):
    """Hold every shared parameter with its Fisher information."""

    options_type = EWCOptions
    scenarios = ("task", "domain", "class")
    tuning: ClassVar = {"strength": (30.0, 100.0, 300.0, 1e3, 3e3, 1e4)}

    def remember(self, task: int) -> None:
        """One pass over the task for its Fisher information."""
        shared, choices = self.shared_parameters(), self.choices
        found = fisher(
            self.model,
            self.finished_task(task, unit=choices.unit),
            task=task,
            parameters=shared,
            estimator=choices.estimator,
            unit=choices.unit,
        )
        if choices.form == "separate":
            self.penalty.add(found, shared)
        else:
            self.penalty.move(found, shared, keep=choices.gamma)
