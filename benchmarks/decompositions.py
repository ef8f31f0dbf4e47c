"""From a covariance to its eigenvectors: one matrix against an SVD, all layers against training."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from benchmarks import dense
from benchmarks.catalogue import figure
from benchmarks.figure import Figure, at_most
from benchmarks.memories import learned
from benchmarks.network import BATCHES_PER_TASK, network
from benchmarks.steps import plain
from benchmarks.timing import Stopwatch
from nscl import Memory, Penalty, Ratio
from nscl.core.covariance.packed import pack
from nscl.core.projection.projector import project_by_rule
from nscl.core.projection.spectrum import decompose
from nscl.core.state import State
from nscl.training.config.build import build_config


@figure("decomposition-2304")
def decomposition_2304(watch: Stopwatch) -> Figure:
    return one_matrix(watch, 2304, least=2)


@figure("decomposition-4608", full=True)
def decomposition_4608(watch: Stopwatch) -> Figure:
    return one_matrix(watch, 4608, least=1)


@figure("decomposition-task")
def decomposition_of_a_task(watch: Stopwatch) -> Figure:
    state = undecomposed()
    taken = watch.once(lambda: state.projected(State(), project_by_rule(Penalty())))
    step = watch.race({"plain": plain()}, share=0.5)["plain"].best
    epochs = epochs_of_a_task()
    title = "per task: decomposing both factors of all layers ÷ training"
    note = (
        f"training is {epochs} epochs (preset official) of {BATCHES_PER_TASK} plain steps of "
        f"{step * 1e3:.0f} ms; {len(state.blocks)} layers"
    )
    training = epochs * BATCHES_PER_TASK * step
    return Figure("decomposition-task", title, taken, training, "s", at_most(0.02), note)


def one_matrix(watch: Stopwatch, features: int, *, least: int) -> Figure:
    """Without a target: every exact method starts alike, see docs/benchmarks.md."""
    matrix = covariance(features)
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: decompose(matrix[None], Ratio(10.0)),
        "dense": lambda: dense.decompose(matrix),
    }
    times = watch.race(contestants, least=least, most=5, warm=False)
    name, title = f"decomposition-{features}", f"d = {features}: float64 eigh ÷ float32 svd"
    return Figure(name, title, times["ours"].best, times["dense"].best, "s")


def undecomposed() -> State:
    """What ``remember`` knows of all layers when it starts to decompose: both factors."""
    return learned(Memory(network(), rule=Penalty(), factors="kronecker"), _packed)


def epochs_of_a_task() -> int:
    """As the authors' code trains."""
    wanted = {"preset": "official", "method": "finetune"}
    return build_config("split-cifar100-10", wanted).optim.epochs


@cache
def _packed(features: int) -> Tensor:
    return pack(covariance(features)[None])


def covariance(features: int) -> Tensor:
    """A float64 covariance of full rank whose eigenvalues fall by five powers of ten.

    The published spectra of the wide layers have condition numbers of 10⁴ to 5·10⁵.
    """
    draw = torch.Generator().manual_seed(features)
    rows = torch.randn(2 * features, features, generator=draw, dtype=torch.float64)
    rows *= torch.logspace(0, -2.5, features, dtype=torch.float64)
    return rows.T @ rows / len(rows)
