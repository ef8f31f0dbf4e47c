"""The cost of ``remember``: covariances of all layers, alone and inside the complete pass."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks import dense
from benchmarks.catalogue import figure
from benchmarks.figure import Figure, at_least
from benchmarks.network import BATCH, BATCHES_PER_TASK, batch, forward, network
from benchmarks.timing import Stopwatch
from nscl.core.capture.data_pass import Pass
from nscl.core.capture.losses import default_loss
from nscl.core.covariance.accumulator import MEASURED, CovarianceAccumulator
from nscl.core.covariance.observations import Observation
from nscl.core.model.inventory import take_inventory
from nscl.core.model.layer_types import Call, layer_type_of
from nscl.core.norms.fisher import FisherAccumulator

# Batches added in one turn: not every one is multiplied at once, or has its rounding measured.
ADDED = MEASURED


@dataclass(frozen=True)
class Seen:
    """What one convolution was given."""

    layer: nn.Conv2d
    images: Tensor

    @property
    def features(self) -> int:
        """Length of a patch."""
        return self.layer.weight[0].numel()

    def observation(self) -> Observation:
        """The same input as ``remember`` sees it."""
        kind = layer_type_of(self.layer)
        if kind is None:
            raise TypeError(f"nscl does not know {self.layer}")
        (observed,) = kind.observe(self.layer, Call((self.images,), {}, None))
        return observed


@figure("covariance")
def covariance(watch: Stopwatch) -> Figure:
    mine = reference = assembling = 0.0
    inputs = convolution_inputs()
    with torch.no_grad():
        for seen in inputs:
            sums, add = _ours(seen)
            times = watch.race({"ours": add, "dense": _densely(seen)}, share=1 / len(inputs))
            mine += times["ours"].median / ADDED
            reference += times["dense"].median
            assembling += watch.once(sums.total)
    per_batch = mine + assembling / BATCHES_PER_TASK
    note = f"of which {assembling / BATCHES_PER_TASK / BATCH * 1e6:.0f} µs for assembling"
    scale = 1e3 / BATCH
    title = "covariances of one image, all convolutions: unfold + matmul ÷ ours"
    return Figure(
        "covariance", title, per_batch * scale, reference * scale, "ms", at_least(4), note
    )


@figure("remember-pass")
def whole_pass(watch: Stopwatch) -> Figure:
    model = network()
    found = take_inventory(model)
    mine = Pass(model, found, found.norm_parameters())
    images = [batch().images] * ADDED  # in some batches wide layers only keep what they have seen
    fisher, totals = FisherAccumulator(found.norm_parameters()), _totals(model)
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: mine.run(images, forward, None, progress=False),
        "dense": lambda: _dense_pass(model, fisher, totals),
    }
    times = watch.race(contestants)
    ours, densely = times["ours"].best / ADDED, times["dense"].best
    scale = 1e3 / BATCH
    title = "whole remember pass of one image (forward, Fisher, covariances): dense ÷ ours"
    return Figure(
        "remember-pass", title, ours * scale, densely * scale, "ms",
        at_least(1), "without the decomposition, which is below",
    )  # fmt: skip


def convolution_inputs() -> list[Seen]:
    """What all convolutions of the network see of one batch."""
    model, inputs = network().eval(), []
    with ExitStack() as stack, torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                hook = layer.register_forward_hook(
                    lambda layer, args, _: inputs.append(Seen(layer, args[0].clone()))
                )
                stack.callback(hook.remove)
        forward(model, batch().images)
    return inputs


def _ours(seen: Seen) -> tuple[CovarianceAccumulator, Callable[[], object]]:
    device = torch.device("cpu")
    sums = CovarianceAccumulator(groups=1, features=seen.features, constants=0, device=device)
    observation = seen.observation()
    return sums, lambda: [sums.add(observation, None) for _ in range(ADDED)]


def _densely(seen: Seen) -> Callable[[], object]:
    total = torch.zeros(seen.features, seen.features)
    return lambda: dense.add_covariance(total, dense.unfolded(seen.images, seen.layer))


def _totals(model: nn.Module) -> dict[nn.Module, Tensor]:
    found = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    return {layer: torch.zeros(2 * [layer.weight[0].numel()]) for layer in found}


def _dense_pass(
    model: nn.Module, fisher: FisherAccumulator, totals: Mapping[nn.Module, Tensor]
) -> None:
    model.eval()
    with _dense_hooks(totals):
        fisher.add(default_loss(forward(model, batch().images)), BATCH)


@contextmanager
def _dense_hooks(totals: Mapping[nn.Module, Tensor]) -> Iterator[None]:
    def hook(layer: nn.Module, args: tuple[Tensor], _: Tensor) -> None:
        seen = args[0].detach()
        columns = dense.unfolded(seen, layer) if isinstance(layer, nn.Conv2d) else seen.T
        dense.add_covariance(totals[layer], columns)

    with ExitStack() as stack:
        for layer in totals:
            stack.callback(layer.register_forward_hook(hook).remove)
        yield
