"""Connector: two networks from one start, and their mean."""

from pathlib import Path

import pytest
import torch

from nscl.methods.base import Phase
from nscl.methods.projection.connector import PLASTIC, STABLE, Connector, connect
from nscl.methods.teacher import weights_of
from tests.methods.projecting import (
    CONVNET,
    DOMAIN,
    build,
    bwt,
    check_resumes,
    features,
    metrics,
    train,
)


def test_the_mean_of_two_networks() -> None:
    stable = {"w": torch.zeros(2), "n": torch.tensor(7)}
    plastic = {"w": torch.ones(2), "n": torch.tensor(9)}
    found = connect(stable, plastic, 1 / 4)
    assert found["w"].tolist() == [0.25, 0.25]
    assert found["n"] == 7
    assert connect(stable, plastic, 1.0)["w"].tolist() == [1.0, 1.0]


def test_both_start_from_the_last_task_and_meet(tmp_path: Path) -> None:
    setup = build("connector", tmp_path, **CONVNET)
    method = setup.method
    assert isinstance(method, Connector)
    assert [p.name for p in method.phases(0)] == ["train"]
    train(method, 0, steps=5)
    method.end_task(0)
    setup.loaders.task = 1
    method.start_task(1)
    assert method.phases(1) == (PLASTIC, STABLE)
    start = weights_of(method.model)

    method.enter_phase(1, PLASTIC)
    train(method, 1, phase=PLASTIC, steps=9)
    plastic = weights_of(method.model)
    assert not method.memory.report().optimizers  # nothing guards the plastic network

    method.enter_phase(1, STABLE)
    assert all(torch.equal(w, start[n]) for n, w in weights_of(method.model).items())
    train(method, 1, phase=STABLE, steps=9)
    stable = weights_of(method.model)
    assert method.memory.report().optimizers

    method.leave_phase(1, STABLE)
    for name, weight in weights_of(method.model).items():
        if weight.is_floating_point():
            expected = (stable[name] + plastic[name]) / 2  # the second task: 1 − 1/2 and 1/2
            assert torch.allclose(weight, expected, atol=1e-6), name
    running = "backbone.norms.0.running_mean"
    assert not torch.equal(plastic[running], stable[running])
    setup.close()


def test_the_third_task_weighs_its_plastic_network_by_a_third(tmp_path: Path) -> None:
    setup = build("connector", tmp_path)
    method = setup.method
    assert isinstance(method, Connector)
    method.start_task(2)
    stable = weights_of(method.model)
    method._plastic = {name: weight + 3 for name, weight in stable.items()}
    method.leave_phase(2, STABLE)
    for name, weight in weights_of(method.model).items():
        if weight.is_floating_point():
            assert torch.allclose(weight, stable[name] + 1, atol=1e-5), name
    setup.close()


def test_the_plastic_network_is_tied_to_the_previous_features(tmp_path: Path) -> None:
    moved = []
    for coefficient in (0.0, 100.0):
        setup = build("connector", tmp_path, options={"feature_coef": coefficient})
        method = setup.method
        train(method, 0)
        method.start_task(1)
        before = features(method, 1)
        train(method, 1, phase=PLASTIC)
        moved.append(float((features(method, 1) - before).square().mean()))
        setup.close()
    assert 0 < moved[1] < moved[0] / 10


@pytest.mark.parametrize("phase", [PLASTIC, STABLE], ids=lambda phase: phase.name)
def test_both_networks_norm_layers_are_pulled_to_their_anchors(
    phase: Phase, tmp_path: Path
) -> None:
    """A step with no gradient of its own moves norm layers back, and nothing else."""
    setup = build("connector", tmp_path, optim={"weight_decay": 0.0}, **CONVNET)
    method = setup.method
    train(method, 0, steps=5)
    method.end_task(0)
    method.start_task(1)
    optimizer = method.optimizer(1, phase)
    anchors, named = weights_of(method.model), dict(method.model.named_parameters())
    fishers = {name: anchor.fisher for name, anchor in method.memory._state.anchors.items()}
    assert fishers.keys() == {name for name, _ in method.model.norm_parameters()}
    with torch.no_grad():
        for parameter in named.values():
            parameter.add_(0.1)
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in named.items():
        away = (parameter.detach() - anchors[name]).double()
        free = fishers[name] == 0 if name in fishers else torch.ones_like(away, dtype=torch.bool)
        assert (away[~free] < 0.1 - 1e-6).all(), name
        torch.testing.assert_close(away[free], torch.full_like(away[free], 0.1))
        assert parameter.grad is not None
        assert not parameter.grad.any()  # what was lent is taken back
    setup.close()


def test_norm_layers_of_the_plastic_network_are_free_where_none_are_held(tmp_path: Path) -> None:
    moved = []
    for norms in ("ewc", "train"):
        setup = build("connector", tmp_path, options={"norms": norms}, **CONVNET)
        method = setup.method
        train(method, 0)
        method.end_task(0)
        method.start_task(1)
        start = weights_of(method.model)
        train(method, 1, phase=PLASTIC)
        shifts = [p.detach() - start[n] for n, p in method.model.norm_parameters()]
        moved.append(float(torch.cat(shifts).norm()))
        setup.close()
    assert 0 < moved[0] < moved[1]


def test_a_resumed_start_is_where_the_network_is(tmp_path: Path) -> None:
    """Checkpoints are read into the processor's memory, wherever the run computes."""
    setup = build("connector", tmp_path, **CONVNET)
    method = setup.method
    assert isinstance(method, Connector)
    method.start_task(1)
    saved = method.task_state()
    method.lab.device = torch.device("meta")
    method.load_task_state(saved)
    assert method._start.keys() == saved["start"].keys()
    assert {weight.device.type for weight in method._start.values()} == {"meta"}
    setup.close()


@pytest.mark.parametrize("given", [CONVNET, DOMAIN], ids=["conv", "domain"])
def test_runs(given: dict[str, object], tmp_path: Path) -> None:
    last = metrics("connector", tmp_path, **given)[-1]
    assert 0 < last["free"] < 1
    assert last["feature_distance"] > 0


@pytest.mark.parametrize(
    ("phase", "given"), [("plastic", CONVNET), ("plastic", {}), ("stable", {})]
)
def test_resumes_bit_for_bit(phase: str, given: dict[str, object], tmp_path: Path) -> None:
    check_resumes("connector", tmp_path, phase=phase, **given)


@pytest.mark.slow  # three seeds; one: test_quick_digits
def test_forgets_less_than_fine_tuning() -> None:
    assert bwt("connector") > bwt("finetune") + 1
