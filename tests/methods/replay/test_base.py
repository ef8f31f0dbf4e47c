"""What replay methods share: how the memory passes, switches without effect, the first task."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nscl.data.images.augment import normalise
from nscl.errors import NsclError
from nscl.methods.replay.a_gem import AGEM, AGEMOptions
from nscl.methods.replay.base import Replay
from nscl.methods.replay.gem import GEM
from nscl.methods.replay.mega import MEGA
from tests.methods.labs import (
    Normed,
    Steps,
    lab,
    normed,
)
from tests.methods.setups import made


@pytest.mark.parametrize("kind", [AGEM, MEGA])
def test_the_memory_passes_before_the_batch(kind: type[Replay]) -> None:
    """With batch norm the last pass has the largest share in the running statistics."""
    steps = normed(kind, per_class=4)  # fewer than a reference batch: all of them are drawn
    method, backbone = steps.method, steps.method.model.backbone
    assert isinstance(method, Replay)
    assert isinstance(backbone, Normed)
    kept = torch.cat([method.memory.task(k).images for k in range(3)])
    old, batch = normalise(kept, (0.5,), (0.25,)), steps.batch()
    expected = backbone.running_mean_of([old, batch.images])
    steps.step(batch)
    torch.testing.assert_close(backbone[2].running_mean, expected)


@pytest.mark.parametrize("kind", [AGEM, MEGA, GEM])
def test_the_memory_passes_in_float32_in_whatever_the_batch_does(kind: type[Replay]) -> None:
    steps, seen = normed(kind), []
    layer = steps.method.model.backbone[1]
    layer.register_forward_hook(lambda *passed: seen.append(passed[2].dtype))
    with torch.autocast("cpu", torch.bfloat16):
        steps.method.loss(steps.batch(), steps.phase)
    assert seen == [*[torch.float32] * (3 if kind is GEM else 1), torch.bfloat16]


def test_the_first_task_is_plain_and_needs_no_memory() -> None:
    small_lab = lab((2, 2))
    method = AGEM(small_lab, AGEMOptions())
    steps = Steps(method, 0)
    steps.step(steps.batch())
    assert method.metrics() == {}
    assert method.state_bytes() == 0


@pytest.mark.parametrize(
    ("scenario", "option", "message"),
    [
        ("task", {"memory_bn": "eval"}, "no layer of this network keeps running statistics"),
        ("domain", {"old_heads": False}, "one head, which is never old"),
    ],
)
def test_switches_that_would_change_nothing_are_refused(
    scenario: str, option: dict[str, Any], message: str
) -> None:
    with pytest.raises(NsclError, match=message):
        AGEM(lab((2, 2), scenario=scenario), AGEMOptions(**option))


def test_kept_images_pass_as_they_are_or_augmented(tmp_path: Path) -> None:
    seen = []
    for augment in (False, True):
        settings = {"options": {"augment": augment}, "data": {"augment": "crop-flip"}}
        method = made("a-gem", tmp_path, **settings).method
        assert isinstance(method, AGEM)
        images = method.lab.stream[0].train.images[:9]
        torch.manual_seed(0)
        seen.append((method._ready(images), normalise(images, *pixel_scale(method))))
    (plain, expected), (augmented, _) = seen
    assert torch.equal(plain, expected)
    assert not torch.equal(augmented, expected)
    assert augmented.shape == expected.shape


def pixel_scale(method: AGEM) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return method.lab.stream.mean, method.lab.stream.std
