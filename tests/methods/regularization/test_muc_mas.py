"""MUC-MAS: its figures, its four stages, what each of them may touch."""

from pathlib import Path

import pytest
import torch
from torch.func import functional_call

from nscl.errors import NsclError
from nscl.methods.base import Phase
from nscl.methods.regularization.mas import mas_importance
from nscl.methods.regularization.muc_mas import MUCMAS
from nscl.training.config.schema import ConfigError
from nscl.training.experiment import run
from tests.methods.setups import batch_of, frozen, made, moved, train
from tests.runs import small

POOL = {"pool": "procedural", "pool_size": 100}
CONVNET = {"name": "convnet", "width": 4}
SIDE = Phase("side", epochs=1)


def muc(tmp_path: Path, **settings: object) -> tuple[object, MUCMAS]:
    options = POOL | settings.pop("options", {})  # type: ignore[operator]
    setup = made("muc-mas", tmp_path, options=options, **settings)
    assert isinstance(setup.method, MUCMAS)
    return setup, setup.method


def test_the_side_phase_moves_nothing_but_side_classifiers(tmp_path: Path) -> None:
    setup, method = muc(tmp_path, model=CONVNET)
    before = frozen(setup.model.state_dict())
    train(setup, 0, SIDE)
    assert not moved(before, setup.model.state_dict())
    assert all(p.grad is None for p in setup.model.parameters())
    assert method.side is not None
    start = frozen(method.side.state_dict())
    optimizer = torch.optim.SGD(method.side.parameters(), lr=0.1)
    method.loss(batch_of(setup, 0), SIDE).loss.backward()
    optimizer.step()
    assert moved(start, method.side.state_dict()) == {"weight", "bias"}


def test_side_classifiers_learn_the_task_and_drift_apart_elsewhere(tmp_path: Path) -> None:
    def after_training(weight: float) -> dict[str, float]:
        setup, method = muc(tmp_path, options={"discrepancy": weight})
        torch.manual_seed(0)
        train(setup, 0, Phase(), steps=40)
        train(setup, 0, SIDE, steps=100)
        method.metrics()
        method.loss(batch_of(setup, 0, 64), SIDE)
        return method.metrics()

    pushed, left = after_training(1.0), after_training(0.0)
    assert pushed["side_accuracy"] > 90
    assert pushed["discrepancy"] > 1.5 * left["discrepancy"]


def test_the_importance_of_two_tasks_is_the_sum_of_each(tmp_path: Path) -> None:
    """The released code doubles the last task's instead."""
    setup, method = muc(tmp_path, options={"factor": "constant", "constant": 2.0})
    truth = {name: torch.zeros_like(p) for name, p in method.shared_parameters().items()}
    for task in range(2):
        train(setup, task, Phase())
        train(setup, task, SIDE)
        assert method.side is not None
        outputs = [lambda theta, x, t=task: functional_call(setup.model, theta, (x, t))]
        outputs += method.side.outputs(setup.model.backbone)
        split = setup.stream[task].train
        batches = list(setup.loaders(split, purpose="", augment="none", shuffle=False))
        for number, output in enumerate(outputs):
            shared = method.shared_parameters()
            own = mas_importance(setup.model, batches, output=output, parameters=shared)
            for name, value in own.items():
                truth[name] += value if number == 0 else 2 * value / 3
        method.end_task(task)
    assert method.side is None
    for name, value in truth.items():
        assert torch.allclose(method.penalty.importance[name], value, rtol=1e-4, atol=1e-7)
        assert torch.equal(method.penalty.centre[name], method.shared_parameters()[name])


def test_a_constant_without_its_factor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="constant belongs to factor constant"):
        small("muc-mas", tmp_path, options={"constant": 5.0})


def test_the_default_factor_is_the_stability_of_each_parameter(tmp_path: Path) -> None:
    setup, method = muc(tmp_path)
    train(setup, 0, Phase())
    train(setup, 0, SIDE)
    assert method.side is not None
    outputs = [lambda theta, x: functional_call(setup.model, theta, (x, 0))]
    outputs += method.side.outputs(setup.model.backbone)
    split = setup.stream[0].train
    batches = list(setup.loaders(split, purpose="", augment="none", shuffle=False))
    main, *sides = (
        mas_importance(setup.model, batches, output=output, parameters=method.shared_parameters())
        for output in outputs
    )
    method.end_task(0)
    for name, value in method.penalty.importance.items():
        spread = torch.stack([(side[name] - main[name]) ** 2 for side in sides]).mean(0).sqrt()
        mean = torch.stack([side[name] for side in sides]).mean(0)
        factor = torch.exp(1 - spread / (main[name] + 1e-12))
        assert torch.allclose(value, main[name] + factor * mean, rtol=1e-3, atol=1e-6)
        assert factor[main[name] > 0].std() > 0.1  # no constant would do


def test_the_penalty_holds_while_training_only(tmp_path: Path) -> None:
    setup, method = muc(tmp_path, options={"strength": 3.0})
    train(setup, 0, Phase())
    train(setup, 0, SIDE)
    method.end_task(0)
    train(setup, 1, Phase())
    shown = method.metrics()
    gaps = {n: p.detach() - method.penalty.centre[n] for n, p in method.shared_parameters().items()}
    slow = sum(float((method.penalty.importance[n] * gap**2).sum()) for n, gap in gaps.items())
    assert shown["penalty"] == pytest.approx(1.5 * slow, rel=1e-4)
    assert slow > 0
    setup.model.zero_grad()
    batch = batch_of(setup, 1)
    method.after_backward(batch, SIDE)
    assert all(p.grad is None for p in setup.model.parameters())
    method.after_backward(batch, Phase())
    for name, parameter in method.shared_parameters().items():
        expected = 3 * method.penalty.importance[name] * gaps[name]
        assert torch.allclose(parameter.grad, expected, atol=1e-6)
    assert not any(name.startswith("heads") for name in method.penalty.importance)


def test_nothing_follows_the_last_task(tmp_path: Path) -> None:
    _, method = muc(tmp_path, optim={"epochs": 10})
    assert [(p.name, p.epochs) for p in method.phases(0)] == [("train", None), ("side", 4)]
    assert [p.name for p in method.phases(2)] == ["train"]


def test_importances_without_side_classifiers_are_an_error(tmp_path: Path) -> None:
    _, method = muc(tmp_path)
    with pytest.raises(NsclError, match="task 1 has no side classifiers"):
        method.end_task(0)


def test_one_head_for_all_is_protected_too(tmp_path: Path) -> None:
    from nscl.training.config.build import build_config

    settings = {"method": "muc-mas", "out": tmp_path, "options": POOL, "data": {"first": 2},
            "optim": {"epochs": 1, "batch_size": 64}}  # fmt: skip
    result = run(build_config("permuted-digits", settings))
    assert result.notes["pool"] == "procedural+current"
    head = 10 * 64 + 10
    assert result.state_bytes == 2 * 4 * (head + 2 * (64 * 64 + 64))


def test_a_pool_that_changed_is_refused(tmp_path: Path) -> None:
    _, method = muc(tmp_path)
    method.external.expect("tinyimagenet@8x8")
    with pytest.raises(NsclError, match="began with the unlabelled pool tinyimagenet@8x8"):
        method.external.of_task(0)


def test_a_pool_that_is_not_there_is_named_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(NsclError, match="not a folder with pictures"):
        run(small("muc-mas", tmp_path / "out", options={"pool": f"folder:{tmp_path / 'no'}"}))
    assert not (tmp_path / "out").exists()
