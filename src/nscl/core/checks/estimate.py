"""What a memory will take, before any data pass: bytes and seconds of every layer.

Only shapes count, so a model on the meta device will do. Bytes of covariances and of the copy of
the weights are exact. Projections depend on the data: these are the most that they can take.
Seconds come from small matrices timed on this machine, and are a guide.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from nscl.core.checks.speed import Speed, measured_speed
from nscl.core.covariance.low_rank import is_sketched
from nscl.core.covariance.packed import packed_shape
from nscl.core.model.block import Block, outputs_per_group
from nscl.core.model.inventory import Inventory
from nscl.core.options import MemoryOptions
from nscl.core.projection.rules import Proximal
from nscl.core.report.tables import table

RANKS = (256, 512, 1024, 2048)  # compared with the memory's own choice
WIDEST = 8192  # outputs whose second moments are kept in full (capture/output_gradients)


@dataclass(frozen=True)
class LayerEstimate:
    """What one layer takes: bytes between steps, seconds in ``remember`` and per treatment."""

    name: str
    kind: str
    inputs: int  # features of a group, with one for each bias
    outputs: int
    sketched: str  # which sides are: "", "inputs", "outputs" or "both"
    covariance: int  # bytes
    gradient: int
    projection: int  # at most
    reference: int
    decomposition: float  # seconds, once per remember
    treatment: float  # seconds, each time that a displacement is projected or shrunk

    @property
    def nbytes(self) -> int:
        """All bytes of the layer."""
        return self.covariance + self.gradient + self.projection + self.reference


@dataclass(frozen=True)
class Alternative:
    """The same memory with one option more: bytes in RAM, seconds of decomposition."""

    option: str
    nbytes: int
    decomposition: float


@dataclass(frozen=True)
class Estimate:
    """Per layer and in total; and what ``rank`` and ``offload`` would change."""

    layers: tuple[LayerEstimate, ...]
    others: int  # bytes of parameters outside of layers: copies, and anchors of norm layers
    on_disk: bool  # offload="disk": covariances and gradients are not in RAM
    alternatives: tuple[Alternative, ...] = ()

    @property
    def total(self) -> LayerEstimate:
        """All layers as if they were one; the copies of other parameters are in it."""
        names = ("covariance", "gradient", "projection", "reference")
        seconds = ("decomposition", "treatment")
        sums: dict[str, Any] = {
            name: sum(getattr(layer, name) for layer in self.layers) for name in (*names, *seconds)
        }
        sums["reference"] += self.others
        kind = f"{len(self.layers)} layers"
        return LayerEstimate(name="total", kind=kind, inputs=0, outputs=0, sketched="", **sums)

    @property
    def nbytes(self) -> int:
        """Bytes of RAM between steps."""
        total = self.total
        return total.nbytes - (total.covariance + total.gradient if self.on_disk else 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {**asdict(self), "total": asdict(self.total), "nbytes": self.nbytes}

    def __str__(self) -> str:
        head = (
            "layer", "kind", "sketched", "inputs", "outputs", "covariance", "gradient",
            "projection ≤", "reference", "decompose", "treat",
        )  # fmt: skip
        lines = table(head, [_row(layer) for layer in (*self.layers, self.total)])
        kept = "; covariances and gradients on disk" if self.on_disk else ""
        lines.append(f"{_bytes(self.nbytes)} of RAM between steps{kept}")
        for other in self.alternatives:
            seconds = _seconds(other.decomposition)
            lines.append(
                f"with {other.option}: {_bytes(other.nbytes)} of RAM, {seconds} to decompose"
            )
        return "\n".join(lines)


def estimate(found: Inventory, options: MemoryOptions, speed: Speed | None = None) -> Estimate:
    """What a memory with these options takes for a model with these parts."""
    speed = speed or measured_speed()
    own = _with_rank(found, options, options.rank, speed)
    widest = max((max(layer.inputs, layer.outputs) for layer in own.layers), default=0)
    ranks = [r for r in RANKS if r < widest] if options.rank is None else []
    if options.projector is not None or options.rule.literal or options.scale == "frobenius":
        ranks = []
    others = [(f"rank={rank}", _with_rank(found, options, rank, speed)) for rank in ranks]
    if not own.on_disk:
        others.append(("offload='disk'", replace(own, on_disk=True)))
    alternatives = (Alternative(o, e.nbytes, e.total.decomposition) for o, e in others)
    return replace(own, alternatives=tuple(alternatives))


def _with_rank(
    found: Inventory, options: MemoryOptions, rank: int | None, speed: Speed
) -> Estimate:
    layers = tuple(_layer(found, b, options, rank, speed) for b in found.blocks.values())
    in_blocks = {name for block in found.blocks.values() for name in block.parameters}
    others = sum(_size(found, name) for name in found.parameters.keys() - in_blocks)
    if options.norms == "ewc":  # two sums in float64
        others += sum(2 * 8 * p.numel() for p in found.elementwise().values())
    return Estimate(layers, others, options.offload == "disk")


@dataclass(frozen=True)
class _Side:
    """One factor of a layer: how many numbers and seconds it takes."""

    groups: int
    width: int
    rank: int | None

    @property
    def is_sketched(self) -> bool:
        return is_sketched(self.width, self.rank)

    @property
    def columns(self) -> int:
        """Known directions: all, or as many as the sketch has."""
        return self.rank if self.rank is not None and self.is_sketched else self.width

    @property
    def sums(self) -> int:
        """Bytes of the second moments."""
        if self.is_sketched:
            return 8 * self.groups * (self.columns * self.width + 2)
        groups, lines, columns = packed_shape(self.groups, self.width)
        return 8 * groups * lines * columns

    def seconds(self, speed: Speed) -> float:
        """Of the decomposition."""
        if self.is_sketched:
            return self.groups * speed.decompose_sketch(self.width, self.columns)
        return self.groups * speed.decompose(self.width)


def _layer(
    found: Inventory, block: Block, options: MemoryOptions, rank: int | None, speed: Speed
) -> LayerEstimate:
    parameter = found.parameters[block.weight]
    out = outputs_per_group(block, parameter.shape)
    tokens = block.layout == "tokens"
    inputs, outputs = _Side(block.groups, block.width, rank), _Side(block.groups, out, rank)
    weighs = options.factors == "kronecker" and (rank is not None or out <= WIDEST)
    size = 8 if parameter.element_size() == 8 else 4
    columns = _columns(inputs, options) if not tokens else 0
    kept = block.groups * block.width * (columns if not tokens else 1)
    products = 2 * out * block.width * columns  # multiplications and additions
    if weighs:
        kept += block.groups * out * outputs.columns
        products += 2 * out * block.width * outputs.columns
    sides = {"inputs": inputs.is_sketched and not tokens, "outputs": weighs and outputs.is_sketched}
    named = [name for name, is_so in sides.items() if is_so]
    return LayerEstimate(
        name=block.name,
        kind=block.kind,
        inputs=block.width,
        outputs=out,
        sketched="both" if len(named) == 2 else "".join(named),
        covariance=8 * block.features if tokens else inputs.sums,
        gradient=outputs.sums if weighs else 0,
        projection=size * kept,
        reference=_reference(found, block),
        decomposition=(0.0 if tokens else inputs.seconds(speed))
        + (outputs.seconds(speed) if weighs else 0.0),
        treatment=block.groups * products * (speed.precise if size == 8 else speed.single),
    )


def _columns(side: _Side, options: MemoryOptions) -> int:
    """Columns of a projection at most: a hard rule takes the thinner side."""
    if side.is_sketched or isinstance(options.rule, Proximal):
        return side.columns
    # One product with a dense matrix counts like two with half as many columns.
    return side.width if options.rule.soft else side.width // 2


def _reference(found: Inventory, block: Block) -> int:
    parameter = found.parameters[block.weight]
    share = (block.stop - block.start) / parameter.shape[0] if block.layout == "rows" else 1.0
    own = [] if block.layout == "tokens" else block.biases
    length = outputs_per_group(block, parameter.shape) * block.groups
    biases = sum(length * found.parameters[b.parameter].element_size() for b in own)
    return round(_size(found, block.weight) * share) + biases


def _size(found: Inventory, name: str) -> int:
    parameter = found.parameters[name]
    return parameter.numel() * parameter.element_size()


def _row(layer: LayerEstimate) -> tuple[str, ...]:
    return (
        layer.name, layer.kind, layer.sketched, str(layer.inputs or ""), str(layer.outputs or ""),
        _bytes(layer.covariance), _bytes(layer.gradient), _bytes(layer.projection),
        _bytes(layer.reference), _seconds(layer.decomposition), _seconds(layer.treatment),
    )  # fmt: skip


def _bytes(count: float) -> str:
    """A size as people read it.

    >>> _bytes(3 * 2**30), _bytes(1536), _bytes(12)
    ('3.00 GiB', '1.50 KiB', '12 B')
    """
    for unit in ("GiB", "MiB", "KiB"):
        power = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}[unit]
        if count >= power:
            return f"{count / power:.2f} {unit}"
    return f"{count:.0f} B"


def _seconds(value: float) -> str:
    """A duration as people read it.

    >>> _seconds(400), _seconds(2.5), _seconds(0.004)
    ('6.7 min', '2.50 s', '4.00 ms')
    """
    if value >= 60:
        return f"{value / 60:.1f} min"
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"
