"""How far the model's own output on a batch has moved: the model now beside the remembered one."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.capture.batch import call, describe, samples_in, to_device
from nscl.core.capture.data_pass import Forward
from nscl.core.capture.forward_hooks import evaluating
from nscl.core.capture.losses import float_tensors, logits_of
from nscl.core.distributed.fsdp import reshard
from nscl.core.recall import with_remembered
from nscl.core.report import ProbeForgetting
from nscl.errors import FeatureError, NsclError


def measure_probe(
    model: nn.Module, remembered: Mapping[str, Tensor], batch: Any, forward: Forward | None
) -> ProbeForgetting:
    """Both outputs in eval mode, full precision and without a gradient."""
    batch = to_device(batch, next(model.parameters()).device)
    if samples_in(batch) == 0:
        raise FeatureError(f"the probe is empty: {describe(batch)}")
    run = partial(_run, forward=forward or call, batch=batch)
    with torch.no_grad(), evaluating(model):
        before = with_remembered(model, remembered, run)
        try:
            now = run(model)
        finally:
            reshard(model)
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    return compare(before, now, mask=mask if isinstance(mask, Tensor) else None)


def _run(model: nn.Module, *, forward: Forward, batch: Any) -> Any:
    try:
        return forward(model, batch)
    except NsclError:
        raise
    except Exception as problem:
        raise FeatureError(
            f"the model could not take the probe ({describe(batch)}): {type(problem).__name__}: "
            f"{problem}. If it needs unpacking, give forward=lambda model, batch: ..."
        ) from problem


def compare(before: Any, now: Any, *, mask: Tensor | None = None) -> ProbeForgetting:
    """Two outputs of any structure; of one that has logits, the logits alone.

    ``mask [samples, positions]`` is 0 where a sequence is padding.

    >>> compare(torch.zeros(2, 3), torch.ones(2, 3)).drift
    3.0
    """
    logits = [logits_of(output) for output in (before, now)]
    old, new = (
        list(_rows(output if one is None else one, mask))
        for output, one in zip((before, now), logits, strict=True)
    )
    if not old or [t.shape for t in old] != [t.shape for t in new]:
        raise FeatureError(
            f"the outputs on the probe cannot be compared: {describe(before)} as remembered, "
            f"{describe(now)} now; give forward=lambda model, batch: ... with tensors of one shape"
        )
    count = len(old[0])
    moved = sum(float((b - a).square().sum()) for a, b in zip(old, new, strict=True))
    size = sum(float(a.square().sum()) for a in old)
    found = ProbeForgetting(count, moved / count, moved / size if size > 0 else 0.0)
    if logits[0] is None:
        return found
    kl, agreement = _answers(old[0], new[0])
    return ProbeForgetting(count, found.drift, found.relative, kl, agreement)


def _rows(output: Any, mask: Tensor | None) -> Iterator[Tensor]:
    """The tensors of an output as ``[rows, features]`` in float64, without padding."""
    for tensor in float_tensors(output):
        exact = tensor.detach().double()
        if mask is not None and exact.ndim > 2 and exact.shape[:2] == mask.shape:
            exact = exact[mask.to(exact.device) != 0]
        yield exact.reshape(-1, exact.shape[-1]) if exact.ndim else exact.reshape(1, 1)


def _answers(old: Tensor, new: Tensor) -> tuple[float, float]:
    """Mean KL divergence of the new answers from the old, and how many stayed the same."""
    was, is_now = old.log_softmax(-1), new.log_softmax(-1)
    kl = (was.exp() * (was - is_now)).sum(-1).mean()
    same = (old.argmax(-1) == new.argmax(-1)).double().mean()
    return max(0.0, float(kl)), float(same)
