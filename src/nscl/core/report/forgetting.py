"""How far a model has moved since the last ``remember``: what is counted, and what is not."""

from dataclasses import asdict, dataclass
from typing import Any

from nscl.core.report.forgetting_table import forgetting_lines
from nscl.core.report.statistics import Shift


@dataclass(frozen=True)
class LayerForgetting:
    """How far one layer's outputs on all remembered data have moved."""

    name: str
    drift: float  # mean over remembered rows of ‖Δoutput‖²
    relative: float  # the same over the mean ‖output‖²
    # Weighed by the loss's gradients, where they were remembered (factors="kronecker"):
    # Predicted rise of the old loss per sample, ½ tr(G ΔW C ΔWᵀ). With drawn labels that loss is
    # the divergence from the old answers, softened by remember's temperature.
    loss: float | None = None
    weighed: float | None = None  # relative as above; what Budget keeps at or below its drift


@dataclass(frozen=True)
class ParameterForgetting:
    """How far a norm layer or a plain parameter has moved; it is weighed number by number."""

    name: str
    moved: float  # ‖Δw‖ / ‖w‖
    loss: float  # predicted rise of the old loss per sample, ½ Σ F Δw², F a mean over tasks
    weighed: float  # Σ F Δw² / Σ F max(w², 1); what Budget keeps at or below its drift


@dataclass(frozen=True)
class Uncounted:
    """What has moved without a share in the total: nothing remembered says what it costs."""

    name: str
    why: str
    moved: float | None  # ‖Δw‖ / ‖w‖; None: there is nothing to compare it with


@dataclass(frozen=True)
class ProbeForgetting:
    """How far the model's own output on one batch has moved, measured on that batch."""

    rows: int  # samples, or positions of sequences; padding is left out
    drift: float  # mean over rows of ‖Δoutput‖²
    relative: float  # the same over the mean ‖output‖²
    # Where the output is logits:
    kl: float | None = None  # mean KL divergence from the old answers, nats
    agreement: float | None = None  # share of rows with the same most likely answer


@dataclass(frozen=True)
class Forgetting:
    """Movement since the last ``remember``, measured exactly without the old data.

    The total is over layers. Its ``loss``, where layers have one, contains that of ``parameters``.
    """

    layers: tuple[LayerForgetting, ...]
    statistics: tuple[Shift, ...]
    total: LayerForgetting
    parameters: tuple[ParameterForgetting, ...] = ()  # norm layers and plain parameters
    uncounted: tuple[Uncounted, ...] = ()
    probe: ProbeForgetting | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(forgetting_lines(self))
