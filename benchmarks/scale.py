"""``python -m benchmarks.scale``: what a memory of an 8B Llama takes, projected from shapes.

The model is on the meta device: no weight exists. Bytes follow from shapes. Seconds follow from
small matrices that are timed on this machine, and from the sketch of a few real rows.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import torch
from torch import nn

from benchmarks.machine import facts
from nscl import Memory
from nscl.core.checks.estimate import Estimate, LayerEstimate
from nscl.core.checks.speed import measured_speed
from nscl.core.covariance.observations import InputRows
from nscl.core.covariance.sketch_accumulator import SketchAccumulator

WIDTH, INNER, KEYS, VOCABULARY, DEPTH = 4096, 14336, 1024, 128256, 32
FOLLOWERS = ("key", "value", "up")  # fed what "query" and "gate" are fed
GIB = 2**30


class Layer(nn.Module):
    """The weights of one decoder layer; it is never run."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(WIDTH, KEYS, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)


def llama() -> nn.Module:
    """The shapes of Llama 3 8B."""
    with torch.device("meta"), torch.no_grad():
        layers = nn.Sequential(*(Layer() for _ in range(DEPTH)))
        return nn.ModuleDict(
            {
                "tokens": nn.Embedding(VOCABULARY, WIDTH),
                "layers": layers,
                "norm": nn.RMSNorm(WIDTH),
                "head": nn.Linear(WIDTH, VOCABULARY, bias=False),
            }
        ).bfloat16()


def kinds(plan: Estimate) -> dict[str, list[LayerEstimate]]:
    """Layers by the last part of their name."""
    found: dict[str, list[LayerEstimate]] = {}
    for layer in plan.layers:
        found.setdefault(layer.name.rpartition(".")[2], []).append(layer)
    return found


def shared(plan: Estimate) -> tuple[int, float]:
    """Bytes and seconds that inputs in common save: one covariance, one basis, one decomposition.

    The second factor of a layer is its own, so only what its inputs take is saved.
    """
    nbytes, seconds = 0, 0.0
    for layer in plan.layers:
        if layer.name.rpartition(".")[2] in FOLLOWERS:
            columns = layer.projection - 4 * layer.outputs * min(layer.outputs, rank_of(layer))
            nbytes += layer.covariance + columns
            seconds += decomposition(layer.inputs, rank_of(layer))
    return nbytes, seconds


def rank_of(layer: LayerEstimate) -> int:
    """The rank of a sketched layer, by its bytes; of a full one its width."""
    return (layer.covariance // 8 - 2) // layer.inputs if layer.sketched else layer.inputs


def decomposition(width: int, rank: int) -> float:
    """Seconds for one factor."""
    speed = measured_speed()
    return speed.decompose_sketch(width, rank) if rank < width else speed.decompose(width)


def per_row(rank: int, rows: int) -> float:
    """Seconds that one row of 4096 features costs a sketch; more in proportion to the width."""
    sums = SketchAccumulator(
        groups=1, features=WIDTH, constants=0, device=torch.device("cpu"), rank=rank
    )
    values = torch.randn(1, rows, WIDTH, generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    sums.add(InputRows(values), None)
    sums.sketch()
    return (time.perf_counter() - start) / rows


def lines(rank: int, rows: int) -> Iterator[str]:
    """What is printed."""
    model = llama()
    count = sum(p.numel() for p in model.parameters())
    yield f"{count / 1e9:.2f} billion parameters in bfloat16"
    for chosen in (None, rank):
        plan = Memory(model, rank=chosen).estimate()
        yield from table(plan, f"rank={chosen}")
        if chosen:
            nbytes, seconds = shared(plan)
            yield f"inputs in common save {nbytes / GIB:.1f} GiB, {seconds / 60:.1f} min"
            left = plan.nbytes - plan.total.covariance - plan.total.gradient
            yield f"offload='disk' leaves {left / GIB:.1f} GiB in RAM before that"
    cost = per_row(rank, rows)
    per_layer = 2 * WIDTH + INNER + WIDTH  # query's, out's and gate's inputs; down's
    yield f"a row of {WIDTH} features: {1e6 * cost:.0f} µs to sketch with rank {rank}"
    whole = cost * DEPTH * per_layer / WIDTH
    yield f"a token, the inputs of {DEPTH} layers: {1e3 * whole:.0f} ms to sketch"
    speeds = {name: f"{value:.3g}" for name, value in asdict(measured_speed()).items()}
    yield f"seconds per operation: {speeds}; machine: {facts()}"


def table(plan: Estimate, title: str) -> Iterator[str]:
    """One line per kind of layer."""
    yield f"\n{title}: {'':14}each: covariance  gradient  projection  reference (MiB)   decompose"
    for kind, layers in kinds(plan).items():
        one, mib = layers[0], 2**20
        sizes = (one.covariance, one.gradient, one.projection, one.reference)
        row = "".join(f"{size / mib:11.1f}" for size in sizes)
        shape = f"{one.inputs} → {one.outputs}"
        yield f"{len(layers):3} × {kind:7}{shape:>16}{row}{one.decomposition:14.1f} s"
    total = plan.total
    yield (
        f"in all {plan.nbytes / GIB:.1f} GiB: covariances {total.covariance / GIB:.1f}, gradients "
        f"{total.gradient / GIB:.1f}, projections {total.projection / GIB:.1f}, copies "
        f"{total.reference / GIB:.1f}; {total.decomposition / 60:.1f} min to decompose"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the projection."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rank", type=int, default=512, help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=2048, help="sketched to be timed")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    for line in lines(options.rank, options.rows):
        print(line)


if __name__ == "__main__":
    main()
