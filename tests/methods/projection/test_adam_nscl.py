"""Adam-NSCL: its options make the memory, and it remembers every task but the last."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nscl import Energy, Ratio, Ridge, Tolerance
from nscl.methods.projection.adam_nscl import AdamNSCL, AdamNSCLOptions
from tests.methods.projecting import build, shift, train


def adam_nscl(out: Path, **given: Any) -> AdamNSCL:
    method = build("adam-nscl", out, **given).method
    assert isinstance(method, AdamNSCL)
    return method


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, Ratio(10.0)),
        ({"a": 30, "literal": True}, Ratio(30.0, literal=True)),
        ({"rule": "energy", "share": 0.1}, Energy(0.1)),
        ({"rule": "tolerance", "rtol": 1e-6}, Tolerance(1e-6)),
        ({"rule": "ridge", "alpha": 3}, Ridge(3.0)),
    ],
)
def test_a_rule_has_its_own_number(options: dict[str, Any], rule: object) -> None:
    assert AdamNSCLOptions(**options).make_rule() == rule


@pytest.mark.parametrize(
    ("rule", "name"), [("ratio", "a"), ("ridge", "alpha"), ("energy", "share"), ("tolerance", "")]
)
def test_the_strength_to_tune_is_the_rules_own(rule: Any, name: str) -> None:
    strengths = AdamNSCL.strengths(AdamNSCLOptions(rule=rule))
    assert set(strengths) == ({name} if name else set())
    for option, values in strengths.items():
        for value in values:
            assert AdamNSCLOptions.model_validate({"rule": rule, option: value})


def test_the_options_reach_the_memory(tmp_path: Path) -> None:
    given = {"rule": "ridge", "acts_on": "displacement", "norms": "train"}
    memory = adam_nscl(tmp_path, options=given).memory
    assert memory.rule == Ridge(10.0)
    assert (memory.acts_on, memory.norms) == ("displacement", "train")
    assert adam_nscl(tmp_path, options={"scale": "frobenius"}).memory.scale == "frobenius"


def test_means_of_batches_have_less_energy_than_images(tmp_path: Path) -> None:
    energy = []
    for features in ("per_sample", "batch_mean"):
        method = adam_nscl(tmp_path, options={"features": features})
        method.optimizer(0, method.phases(0)[0])
        method.end_task(0)
        values, _ = next(iter(method.spectra().values()))
        energy.append(float(values.sum() - values.max()))  # beside the mean image, which both have
    assert 0 < energy[1] < energy[0] / 3


def test_the_last_task_is_not_remembered(tmp_path: Path) -> None:
    method = adam_nscl(tmp_path, data={"first": 2})
    assert method.metrics() == {}
    for task in range(2):
        train(method, task, steps=3)
        method.end_task(task)
    assert method.memory.tasks == 1
    assert 0 < method.metrics()["free"] < 1


def test_old_features_move_less_than_under_fine_tuning(tmp_path: Path) -> None:
    torch.manual_seed(0)
    free = shift("finetune", tmp_path)
    assert shift("adam-nscl", tmp_path, options={"a": 10.0}) < free / 3
