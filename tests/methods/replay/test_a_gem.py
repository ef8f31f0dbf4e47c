"""A-GEM and what it shares with MEGA: the reference batch, its cost, its checkpoints."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nscl.data.images.augment import normalise
from nscl.methods.replay.a_gem import AGEM, AGEMOptions, reference_weight
from nscl.methods.replay.base import Replay
from nscl.methods.replay.flat_gradients import inner
from nscl.methods.replay.mega import MEGA
from nscl.training.config.presets import preset
from nscl.training.experiment import run
from tests.methods.digits import backward_transfer, last_epoch, written_options
from tests.methods.labs import (
    Steps,
    batch_samples,
    kept_samples,
    lab,
    memory_loss,
    operations_per_step,
    slow_gradient,
    trained,
    weights,
)
from tests.runs import small

WIDTHS = (2, 3, 2, 4)


def projected(g: Tensor, r: Tensor) -> Tensor:
    rows = torch.stack([g, r])
    return g + reference_weight(inner(rows, rows)) * r


@pytest.mark.parametrize(
    ("g", "r", "expected"),
    [
        ((1.0, 1.0), (-1.0, 0.0), (0.0, 1.0)),  # row 16 of the sanity table
        ((2.0, 1.0), (-1.0, 1.0), (1.5, 1.5)),  # row 17
        ((1.0, 1.0), (1.0, -1.0), (1.0, 1.0)),  # orthogonal: not violated
        ((1.0, 1.0), (0.0, 0.0), (1.0, 1.0)),  # a memory learned perfectly
    ],
)
def test_values_of_the_specification(g: Any, r: Any, expected: Any) -> None:
    found = projected(torch.tensor(g), torch.tensor(r))
    assert found.tolist() == pytest.approx(expected, abs=1e-7)


@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_the_projection_is_orthogonal_to_the_reference_or_the_gradient_itself(
    seed: int, size: int
) -> None:
    g, r = torch.randn(2, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = projected(g, r)
    if float(g @ r) >= 0:
        assert torch.equal(found, g)
    else:
        assert float(found @ r) == pytest.approx(0.0, abs=1e-12 * float(g.norm() * r.norm()))
        assert float(found.norm()) <= float(g.norm())
        assert float(found @ g) == pytest.approx(float(found @ found))  # the nearest such vector


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_a_step_is_the_slow_truth_in_float64(scenario: str) -> None:
    """With a batch as large as the memory: each sample alone, through its own head, then a mean.

    Heads differ in width, so a mean of the tasks' means would be something else.
    """
    widths = WIDTHS if scenario == "task" else (3, 3, 3, 3)
    steps = trained(AGEM, 3, widths, scenario=scenario)
    method, model = steps.method, steps.method.model
    assert isinstance(method, AGEM)
    for start in range(0, 40, 4):
        batch = steps.batch(4, start=start)
        g = slow_gradient(model, batch_samples(batch))
        r = slow_gradient(model, [s for k in range(3) for s in kept_samples(method, k)])
        before = weights(model)
        steps.step(batch)
        found = (before - weights(model)) / 0.1
        torch.testing.assert_close(found, projected(g, r), rtol=1e-9, atol=1e-9)
    assert 0 < method.metrics()["violated"] < 1
    assert method.metrics()["removed"] > 0


def test_under_plain_sgd_the_mean_memory_loss_does_not_rise() -> None:
    steps = trained(AGEM, 3, WIDTHS, old_heads=False)
    method = steps.method
    assert isinstance(method, AGEM)
    for group in steps.optimizer.param_groups:
        group["lr"] = 1e-6
    sizes = [len(method.memory.task(k)) for k in range(3)]

    def mean_loss() -> float:
        return sum(n * memory_loss(method, k) for k, n in enumerate(sizes)) / sum(sizes)

    for start in range(0, 40, 4):
        before = mean_loss()
        steps.step(steps.batch(4, start=start))
        assert mean_loss() <= before + 1e-10
    assert method.metrics()["violated"] > 0


def test_the_reference_is_drawn_from_old_tasks_only_and_never_twice() -> None:
    steps = trained(AGEM, 3, WIDTHS, reference_batch=11)
    method, seen = steps.method, []
    assert isinstance(method, AGEM)
    assert method.memory.tasks == (0, 1, 2)
    method.model.backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    kept = torch.cat([method.memory.task(k).images for k in range(3)])
    ready = normalise(kept, (0.5,), (0.25,)).flatten(1)
    for _ in range(5):
        method.reference_gradient(11)
    for batch in seen:
        rows = [int((ready == image).all(1).nonzero()) for image in batch.flatten(1)]
        assert len(set(rows)) == 11
    assert not torch.equal(seen[0], seen[1])


@pytest.mark.parametrize("kind", [AGEM, MEGA])
@pytest.mark.parametrize("learn", [True, False])
def test_a_step_of_task_20_asks_torch_for_no_more_than_one_of_task_2(
    kind: type[Replay], learn: bool
) -> None:
    early, late = operations_per_step(kind, (1, 19), old_heads=learn, reference_batch=10)
    assert late <= early + 5


@pytest.mark.parametrize("kind", [AGEM, MEGA])
def test_saved_in_the_middle_of_an_epoch_it_goes_on_with_the_same_draws(kind: type[Replay]) -> None:
    small_lab = lab((2, 3))
    whole = kind(small_lab, kind.options_type(per_class=10, reference_batch=6))
    whole.end_task(0)
    steps = Steps(whole, 1)
    for start in (0, 10):
        steps.step(steps.batch(start=start))
    file = io.BytesIO()
    parts = (small_lab.model.state_dict(), whole.task_state(), whole.epoch_state())
    torch.save(parts, file)
    for start in (20, 30):
        steps.step(steps.batch(start=start))

    file.seek(0)
    model, task_state, epoch_state = torch.load(file, weights_only=True)
    other = lab((2, 3))
    other.model.load_state_dict(model)
    resumed = kind(other, kind.options_type(per_class=10, reference_batch=6))
    resumed.load_task_state(task_state)
    again = Steps(resumed, 1)
    resumed.load_epoch_state(epoch_state)
    for start in (20, 30):
        again.step(again.batch(start=start))
    assert torch.equal(weights(other.model), weights(small_lab.model))
    assert resumed.metrics() == whole.metrics()


def test_the_budget_is_250_images_per_task_on_both_splits_of_cifar() -> None:
    for name in ("gem", "a-gem", "mega"):
        assert preset("paper", "split-cifar100-20", name)["options"] == {"per_class": 50}
        assert "per_class" not in preset("paper", "split-cifar100-10", name)["options"]
        for benchmark in ("split-cifar100-10", "split-cifar100-20"):  # what one core can pass
            assert preset("cpu", benchmark, name)["options"]["per_class"] == 5
    assert AGEMOptions().per_class == 25
    assert "per_class" not in preset("paper", "split-cifar100-20", "adam-nscl")["options"]


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_a_run_on_the_digits_shows_violations_and_the_budget(scenario: str, tmp_path: Path) -> None:
    result = run(small("a-gem", tmp_path, data={"scenario": scenario}))
    figures = last_epoch(tmp_path, result)
    assert 0 < figures["method/violated"] < 1
    assert figures["method/removed"] > 0
    assert written_options(tmp_path, result)["per_class"] == 25
    assert result.state_bytes == 2 * 2 * 25 * (64 + 8)
    assert result.notes == {"images kept per class": 25, "heuristic": "under adam, not plain SGD"}
    assert result.stores == "data"


@pytest.mark.slow  # one seed: test_quick_digits
def test_it_forgets_less_than_fine_tuning_for_every_seed() -> None:
    pairs = zip(backward_transfer("a-gem"), backward_transfer("finetune"), strict=True)
    assert all(mine > plain for mine, plain in pairs)
