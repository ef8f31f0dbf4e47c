"""The figures of the core: step, remember, decomposition, bytes."""

import statistics

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.figure import Figure, interleaved, ratio
from benchmarks.network import (
    FREE,
    DenseWay,
    bases,
    batch,
    conv_inputs,
    guarded,
    resnet,
    unfolded_covariance,
)
from nscl.core.covariance import RunningSums
from nscl.core.layers import Call, layer_type_of
from nscl.core.rules import Ratio
from nscl.core.spectrum import decompose
from nscl.core.symmetric import packed_shape
from nscl.models.heads import TaskModel

BATCHES = 157  # of one task: 5,000 images, 32 at a time


def _plain(model: TaskModel, optimizer: torch.optim.Optimizer) -> None:
    images, labels = batch()
    optimizer.zero_grad()
    F.cross_entropy(model(images, 0), labels).backward()
    optimizer.step()


def _dense(model: TaskModel, optimizer: torch.optim.Optimizer, way: DenseWay) -> None:
    images, labels = batch()
    optimizer.zero_grad()
    (F.cross_entropy(model(images, 0), labels) + way.penalty()).backward()
    way.step(optimizer)


def step(rounds: int = 9) -> list[Figure]:
    """A protected training step over a plain one, at task 1 and at task 25."""
    models = [resnet().train() for _ in range(5)]
    optimizers = [torch.optim.Adam(m.parameters(), 5e-5) for m in models]
    thin = bases(models[0])
    protections = [
        guarded(models[i], thin, tasks).protect(optimizers[i]) for i, tasks in ((1, 1), (2, 25))
    ]
    ways = [DenseWay(models[3], thin, 1), DenseWay(models[4], thin, 25)]
    plain, first, later, dense, dense_later = interleaved(
        lambda: _plain(models[0], optimizers[0]),
        lambda: _plain(models[1], optimizers[1]),
        lambda: _plain(models[2], optimizers[2]),
        lambda: _dense(models[3], optimizers[3], ways[0]),
        lambda: _dense(models[4], optimizers[4], ways[1]),
        rounds=rounds,
    )
    for protection in protections:
        protection.remove()
    medians = [statistics.median(t) for t in (plain, first, later, dense, dense_later)]
    ours, at_25 = ratio(first, plain), ratio(later, first)
    return [
        Figure("protected step ÷ plain Adam step", medians[1], medians[0], ours, "≤ 1.40",
               ours <= 1.40),
        Figure("dense way ÷ plain Adam step (for comparison)", medians[3], medians[0],
               ratio(dense, plain), "–", True),
        Figure("protected step, task 25 ÷ task 1", medians[2], medians[1], at_25, "1 ± 0.03",
               abs(at_25 - 1) <= 0.03),
        Figure("dense way, task 25 ÷ task 1 (for comparison)", medians[4], medians[3],
               ratio(dense_later, dense), "–", True),
    ]  # fmt: skip


def _accumulate(sums: list[RunningSums], inputs: list[tuple[nn.Conv2d, torch.Tensor]]) -> None:
    for running, (conv, images) in zip(sums, inputs, strict=True):
        layer_type = layer_type_of(conv)
        assert layer_type is not None
        for seen in layer_type.observe(conv, Call((images,), {}, None)):
            running.add(seen, None)


def _sums(inputs: list[tuple[nn.Conv2d, torch.Tensor]]) -> list[RunningSums]:
    return [
        RunningSums(groups=1, features=conv.weight[0].numel(), constants=0,
                    device=torch.device("cpu"))
        for conv, _ in inputs
    ]  # fmt: skip


def remember(rounds: int = 5) -> list[Figure]:
    """Covariances of the whole network: per batch, plus a task's assembling spread over it."""
    inputs = conv_inputs(resnet(), batch()[0])
    sums = _sums(inputs)

    def reference() -> None:
        for conv, images in inputs:
            unfolded_covariance(conv, images)

    mine, theirs = interleaved(lambda: _accumulate(sums, inputs), reference, rounds=rounds)
    (assembling,) = interleaved(lambda: _assemble(inputs), rounds=1)
    once = max(0.0, assembling[0] - statistics.median(mine))
    ours = statistics.median(mine) + once / BATCHES
    faster = 1 / (ratio(mine, theirs) + once / BATCHES / statistics.median(theirs))
    return [
        Figure("unfold + matmul ÷ our covariances, whole network", ours, statistics.median(theirs),
               faster, "≥ 4", faster >= 4)
    ]  # fmt: skip


def _assemble(inputs: list[tuple[nn.Conv2d, torch.Tensor]]) -> None:
    sums = _sums(inputs)
    _accumulate(sums, inputs)
    for running in sums:
        running.total()


def decomposition(*, full: bool) -> list[Figure]:
    """float64 eigh with rule and projection weights, against a float32 SVD."""
    figures = []
    for d, target in ((2304, 2.0), *(((4608, 5.0),) if full else ())):
        rows = torch.randn(2 * d, d, dtype=torch.float64) * torch.logspace(0, -3, d)
        covariance = (rows.T @ rows / len(rows))[None]
        single = covariance[0].float()
        mine, theirs = _once_each(
            lambda c=covariance: decompose(c, Ratio(10.0)),
            lambda c=single: torch.linalg.svd(c),
            rounds=2 if d < 4000 else 1,
        )
        faster = theirs / mine
        figures.append(Figure(f"float32 SVD ÷ our decomposition, d = {d}", mine, theirs, faster,
                              f"≥ {target:g}", faster >= target))  # fmt: skip
    return figures


def _once_each(*actions: object, rounds: int) -> list[float]:
    import time

    best = [float("inf")] * len(actions)
    for _ in range(rounds):
        for i, action in enumerate(actions):
            began = time.perf_counter()
            action()  # type: ignore[operator]
            best[i] = min(best[i], 1e3 * (time.perf_counter() - began))
    return best


def resident_bytes() -> list[Figure]:
    """Packed float64 covariances and thin float32 bases, against three dense float32 matrices."""
    features = [c.weight[0].numel() for c, _ in conv_inputs(resnet(), batch()[0])]
    ours = 0
    for d, free in zip(features, FREE, strict=True):
        groups, rows, columns = packed_shape(1, d)
        ours += 8 * groups * rows * columns + 4 * d * min(free, d - free)
    dense = sum(3 * 4 * d * d for d in features)
    share = ours / dense
    return [Figure("resident bytes ÷ dense covariance + eigenvectors + projector", ours / 2**20,
                   dense / 2**20, share, "≤ 0.5", share <= 0.5, "MiB")]  # fmt: skip


def peak_memory() -> list[Figure]:
    """What remembering one batch of a stage-1 convolution allocates at its peak."""
    from torch.profiler import ProfilerActivity, profile

    inputs = [pair for pair in conv_inputs(resnet(), batch()[0]) if pair[1].shape[1:3] == (64, 32)]
    chosen = inputs[:1]
    sums = _sums(chosen)
    _accumulate(sums, chosen)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _accumulate(sums, chosen)
    live = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    unfolded = 32 * 576 * 1024 * 4
    share = peak / unfolded
    return [Figure("peak of remember at stage 1 ÷ unfolded batch", peak / 2**20, unfolded / 2**20,
                   share, "≤ 0.3", share <= 0.3, "MiB")]  # fmt: skip
