"""OWM in both of its modes."""

from pathlib import Path

import pytest
import torch

import nscl
from nscl.core.model.block import Block
from nscl.methods.projection.owm import OWM, OWMOptions
from tests.methods.projecting import (
    CONVNET,
    DOMAIN,
    build,
    bwt,
    check_resumes,
    metrics,
    shift,
    train,
)

ONLINE = {"options": {"mode": "online"}}


def test_task_end_is_a_memory_with_ridge(tmp_path: Path) -> None:
    setup = build("owm", tmp_path, options={"alpha": 0.5})
    memory = setup.method.memory  # type: ignore[attr-defined]
    assert type(memory) is nscl.Memory
    assert (memory.rule, memory.acts_on, memory.scale) == (nscl.Ridge(0.5), "step", "none")
    setup.close()


def test_task_end_projects_by_the_inverse(tmp_path: Path) -> None:
    """``P = (I + A/α)⁻¹`` with A the sum over rows of both tasks, and α in the paper's own unit."""
    setup = build("owm", tmp_path, options={"alpha": 0.5})
    method = setup.method
    assert isinstance(method, OWM)
    for task in range(2):
        train(method, task, steps=5)
        method.end_task(task)
    state = method.memory._state
    for name, covariance in state.covariances.items():
        A = covariance.dense()[0] * covariance.rows
        alpha = 0.5 * float(A.diagonal().mean()) / 2
        expected = torch.linalg.inv(torch.eye(len(A)).double() + A / alpha)
        found = torch.eye(len(A))[None]
        state.projections[name].apply_(found)  # type: ignore[union-attr]
        assert torch.allclose(found[0].double(), expected, atol=1e-5)
    setup.close()


def test_alpha_falls_geometrically_over_a_task() -> None:
    options = OWMOptions(mode="online")
    conv = Block("a", "Conv2d", "a.weight", 0, 4, 9)
    linear = Block("b", "Linear", "b.weight", 0, 4, 9)
    assert [options.decayed(conv, p) for p in (0.0, 0.4, 1.0)] == pytest.approx([1, 1e-2, 1e-5])
    assert [options.decayed(linear, p) for p in (0.0, 0.5, 1.0)] == pytest.approx([1, 0.1, 0.01])


@pytest.mark.parametrize("mode", ["task_end", "online"])
def test_old_features_move_less_than_under_fine_tuning(mode: str, tmp_path: Path) -> None:
    hard = {"alpha": 1e-3} if mode == "task_end" else {"linear_decay": 1e-4}
    options = {"mode": mode, **hard}
    assert shift("owm", tmp_path, options=options) < shift("finetune", tmp_path) / 3


def test_online_is_at_work_from_the_first_step_on(tmp_path: Path) -> None:
    found = metrics("owm", tmp_path, **ONLINE)
    free = [m["free"] for m in found]
    assert free == sorted(free, reverse=True)
    assert 0 < free[-1] < free[0] < 0.95
    assert found[-1]["drift"] > 0


def test_online_counts_the_whole_task(tmp_path: Path) -> None:
    setup = build("owm", tmp_path, **ONLINE)
    method = setup.method
    assert isinstance(method, OWM)
    for task in range(2):
        setup.loaders.task = task
        method.start_task(task)
        batches = len(method.batches(task, augment=True))
        train(method, task, steps=2 * batches)  # two epochs, as configured
        assert method._online is not None
        assert method._online.steps == method._steps
    setup.close()


@pytest.mark.parametrize("given", [CONVNET, DOMAIN], ids=["conv", "domain"])
@pytest.mark.parametrize("mode", ["task_end", "online"])
def test_convolutions_and_one_head_for_all(
    mode: str, given: dict[str, object], tmp_path: Path
) -> None:
    last = metrics("owm", tmp_path, options={"mode": mode}, **given)[-1]
    assert 0 < last["free"] < 1
    assert last["drift"] > 0


def test_online_resumes_bit_for_bit(tmp_path: Path) -> None:
    check_resumes("owm", tmp_path, phase="train", **ONLINE)


# The default mode with one seed: test_quick_digits.
@pytest.mark.parametrize("mode", [pytest.param("task_end", marks=pytest.mark.slow), "online"])
def test_forgets_less_than_fine_tuning(mode: str) -> None:
    assert bwt("owm", (("mode", mode),)) > bwt("finetune") + 1
