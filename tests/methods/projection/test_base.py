"""What all projection methods share: one protected optimizer, the memory in the checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nscl.methods.projection.base import ProjectionMethod, mask_of, through_head, unprotected_heads
from tests.methods.projecting import build, train


def method_of(out: Path, **given: Any) -> ProjectionMethod:
    method = build("adam-nscl", out, **given).method
    assert isinstance(method, ProjectionMethod)
    return method


def test_a_new_optimizer_is_protected_instead_of_the_last_one(tmp_path: Path) -> None:
    method = method_of(tmp_path, data={"first": 2})
    (phase,) = method.phases(0)
    first = method.optimizer(0, phase)
    protection = method._protection
    second = method.optimizer(0, phase)
    assert len(first._optimizer_step_pre_hooks) == len(first._optimizer_step_post_hooks) == 0
    assert second._optimizer_step_pre_hooks
    assert method._protection is not protection
    method.close()
    assert not second._optimizer_step_pre_hooks
    assert method._protection is None
    method.close()


def test_a_checkpoint_brings_the_memory_back(tmp_path: Path) -> None:
    method = method_of(tmp_path)
    assert method.task_state() == {}
    train(method, 0, steps=3)
    method.end_task(0)
    torch.save(method.task_state(), tmp_path / "state")
    again = method_of(tmp_path)
    again.model.load_state_dict(method.model.state_dict())
    again.load_task_state(torch.load(tmp_path / "state", weights_only=True))
    assert again.memory.tasks == 1
    assert method.state_bytes() == sum(method.memory.nbytes.values())
    method.close()
    for kind in ("covariances", "projections", "reference"):
        assert again.memory.nbytes[kind] == method.memory.nbytes[kind] > 0
    for name, (values, weights) in method.spectra().items():
        torch.testing.assert_close(again.spectra()[name][0], values)
        torch.testing.assert_close(again.spectra()[name][1], weights)


@pytest.mark.parametrize(
    ("scenario", "names"), [("task", ("heads",)), ("domain", ()), ("class", ())]
)
def test_heads_that_later_tasks_train_too_are_protected(
    scenario: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    method = method_of(tmp_path, data={"scenario": scenario})
    assert unprotected_heads(method.lab) == names
    method.optimizer(0, method.phases(0)[0])
    method.end_task(0)
    held = {name.split(".")[0] for name in method.spectra()}
    assert "backbone" in held
    assert (len(held) > 1) is not bool(names)
    method.close()


def test_batches_go_through_the_head_of_their_task_with_the_mask_of_texts() -> None:
    def model(inputs: object, task: int) -> tuple[object, int]:
        return inputs, task

    mask = torch.ones(2, 3)
    batch = ({"input_ids": torch.zeros(2, 3), "attention_mask": mask}, torch.zeros(2))
    assert through_head(3)(model, batch) == (batch[0], 3)  # type: ignore[arg-type]
    assert mask_of(batch) is mask
    assert mask_of((torch.zeros(2, 1, 2, 2), torch.zeros(2))) is None
