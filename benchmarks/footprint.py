"""Bytes: what stays between steps, what ``remember`` needs for a moment, what goes to disk."""

import warnings

import torch
from torch import nn

from benchmarks.allocations import peak_bytes
from benchmarks.catalogue import figure
from benchmarks.figure import Figure, at_most
from benchmarks.memories import papers
from benchmarks.network import BATCH, layers, network
from benchmarks.timing import Stopwatch
from nscl import Memory
from nscl.errors import NsclWarning

MIB = 2**20
FLOAT32 = 4


@figure("resident")
def resident_bytes(_: Stopwatch) -> Figure:
    held = papers(network(), tasks=1).nbytes
    mine = held["projections"] + held["covariances"]
    # Covariance, eigenvectors and projector.
    reference = sum(3 * features**2 * FLOAT32 for _, features, _ in layers())
    note = (
        f"projections {held['projections'] / MIB:.0f}, covariances {held['covariances'] / MIB:.0f}"
    )
    title = "resident: projections + covariances ÷ three dense float32 matrices"
    return Figure("resident", title, mine / MIB, reference / MIB, "MiB", at_most(0.5), note)


@figure("resident-offload")
def offloaded_bytes(_: Stopwatch) -> Figure:
    kept = papers(network(), tasks=1).nbytes["covariances"]
    left = papers(network(), tasks=1, offload="disk").nbytes["covariances"]
    title = "covariances in RAM with offload='disk' ÷ without"
    return Figure("resident-offload", title, left / MIB, kept / MIB, "MiB", at_most(0))


@figure("peak")
def peak_extra_memory(_: Stopwatch) -> Figure:
    layer = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False))
    images = torch.randn(BATCH, 64, 32, 32)
    with torch.no_grad():
        forward = peak_bytes(lambda: layer(images))
    with warnings.catch_warnings(category=NsclWarning, action="ignore"):
        remember = peak_bytes(lambda: Memory.adam_nscl(layer).remember(images))
    unfolded = BATCH * 576 * 1024 * FLOAT32
    note = f"remember {remember / MIB:.0f} at its peak, the forward pass alone {forward / MIB:.0f}"
    title = "remember at stage 1, peak above a forward pass ÷ the unfolded batch"
    extra = (remember - forward) / MIB
    return Figure("peak", title, extra, unfolded / MIB, "MiB", at_most(0.3), note)
