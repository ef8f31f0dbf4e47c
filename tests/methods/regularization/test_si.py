"""SI: the path of the loss, step by step, against two backward passes and against parabolas."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.methods.base import Batch, Lab, Phase
from nscl.methods.regularization.si import SI, SIOptions
from nscl.models import MLP, MultiHead
from nscl.training.experiment import run
from tests.methods.regularization.quadratics import descend, lab, point
from tests.runs import small

W = "backbone.w"


def parabola(lr: float, *, steps: int, k: float = 1.0, **options: Any) -> SI:
    """Descend k/2 (w − 1)² from 0 with plain SGD."""
    method = SI(point(lr=lr), SIOptions(**options))
    method.start_task(0)
    w = method.shared_parameters()[W]
    descend(method, lambda: 0.5 * k * (w - 1.0).square().sum(), steps=steps)
    return method


def path(method: SI) -> float:
    return float(method.epoch_state()["path"][W])


def test_path_and_importance_of_a_parabola() -> None:
    """½(w − 1)² from 0 at rate 0.1: row 12 of the sanity table; omega is 1/(2 − lr)."""
    method = parabola(0.1, steps=400, xi=0.1)
    assert path(method) == pytest.approx(0.526316, abs=5e-7)
    assert method.metrics()["path"] == pytest.approx(1 / 1.9)
    method.end_task(0)
    assert method.penalty.importance[W].item() == pytest.approx(0.478469, abs=5e-7)


def test_small_steps_measure_the_fall_of_the_loss() -> None:
    assert path(parabola(0.001, steps=7000)) == pytest.approx(0.50025, abs=5e-6)


@pytest.mark.parametrize("k", [0.5, 1.0, 4.0])
def test_strength_2_is_the_true_loss_of_a_parabola(k: float) -> None:
    """The authors' c = 1: the surrogate of k/2 (w − w*)² is that loss itself."""
    method = parabola(0.01 / k, steps=1000, k=k, xi=1e-9, strength=2.0)
    method.end_task(0)
    assert method.penalty.importance[W].item() == pytest.approx(k / 2, rel=6e-3)
    w = method.shared_parameters()[W]
    with torch.no_grad():
        w.add_(0.3)
    assert method.metrics()["penalty"] == pytest.approx(0.5 * k * 0.3**2, rel=6e-3)


def test_what_made_the_loss_rise_has_no_importance() -> None:
    """Two tasks that push the weight uphill and downhill; only the second counts."""
    uphill = partial(torch.optim.SGD, maximize=True)
    method = SI(point(make=uphill), SIOptions(xi=0.1))
    w = method.shared_parameters()[W]
    method.start_task(0)
    descend(method, lambda: 0.5 * (w - 1.0).square().sum(), steps=3)
    assert path(method) < 0
    method.end_task(0)
    assert method.penalty.importance[W].item() == 0.0
    start = w.item()
    method.lab.make_optimizer = point().make_optimizer
    method.start_task(1)
    descend(method, lambda: 0.5 * (w - 1.0).square().sum(), steps=400, task=1)
    fallen = path(method)
    method.end_task(1)
    expected = fallen / ((w.item() - start) ** 2 + 0.1)
    assert method.penalty.importance[W].item() == pytest.approx(expected)


def problem() -> tuple[MultiHead, Tensor, Tensor]:
    torch.manual_seed(0)
    model = MultiHead(MLP(6, width=5), [3] * 5).double()
    return model, torch.randn(40, 6, dtype=torch.float64), torch.randint(0, 3, (40,))


def optimizers(name: str) -> Any:
    def momentum(groups: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, lr=lr, momentum=0.9)

    return {"sgd": torch.optim.SGD, "momentum": momentum, "adam": torch.optim.Adam}[name]


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_equals_two_backward_passes(name: str) -> None:
    """Slow truth: the task's gradient alone, then that of loss and penalty together."""
    model, x, y = problem()
    place: Lab = lab(copy.deepcopy(model), lr=0.05, make=optimizers(name))
    method = SI(place, SIOptions(strength=3.0, xi=0.01))
    shared = dict(model.backbone_parameters())
    omega = {n: torch.zeros_like(p) for n, p in shared.items()}
    anchor = {n: p.detach().clone() for n, p in shared.items()}
    for task in range(3):
        labels = (y + task) % 3
        method.start_task(task)
        mine = method.model
        descend(method, lambda: F.cross_entropy(mine(x, task), labels), steps=15, task=task)  # noqa: B023
        head = [p for _, p in model.head_parameters(task)]
        optimizer = optimizers(name)([*shared.values(), *head], lr=0.05)
        along = {n: torch.zeros_like(p) for n, p in shared.items()}
        for _ in range(15):
            alone = torch.autograd.grad(
                F.cross_entropy(model(x, task), labels), list(shared.values())
            )
            penalty = sum((omega[n] * (p - anchor[n]) ** 2).sum() for n, p in shared.items())
            optimizer.zero_grad()
            (F.cross_entropy(model(x, task), labels) + 1.5 * penalty).backward()
            before = {n: p.detach().clone() for n, p in shared.items()}
            optimizer.step()
            for (n, p), g in zip(shared.items(), alone, strict=True):
                along[n] -= g * (p.detach() - before[n])
        for n, p in shared.items():
            torch.testing.assert_close(method.epoch_state()["path"][n], along[n])
            moved = p.detach() - anchor[n]
            omega[n] = omega[n] + (along[n] / (moved**2 + 0.01)).clamp_min(0)
            anchor[n] = p.detach().clone()
        method.end_task(task)
    for n, p in method.shared_parameters().items():
        torch.testing.assert_close(method.penalty.importance[n], omega[n])
        torch.testing.assert_close(p, shared[n])
    assert method.metrics()["penalty"] == 0.0  # just re-centred


def test_one_backward_pass_per_step() -> None:
    model, x, y = problem()
    method = SI(lab(model), SIOptions())
    passes: list[Tensor] = []
    model.head(1).bias.register_hook(passes.append)
    for task in (0, 1):
        method.start_task(task)
        descend(method, lambda: F.cross_entropy(model(x, task), y), steps=4, task=task)  # noqa: B023
        method.end_task(task)
    assert len(passes) == 4


def test_a_task_taken_up_half_way_keeps_its_path_and_its_start() -> None:
    model, x, y = problem()
    whole = SI(lab(model), SIOptions())
    whole.start_task(0)
    task_state = copy.deepcopy(whole.task_state())
    descend(whole, lambda: F.cross_entropy(model(x, 0), y), steps=4)
    other = copy.deepcopy(model)
    resumed = SI(lab(other), SIOptions())
    resumed.load_task_state(task_state)
    resumed.load_epoch_state(copy.deepcopy(whole.epoch_state()))
    for method, network in ((whole, model), (resumed, other)):
        descend(method, lambda: F.cross_entropy(network(x, 0), y), steps=4)  # noqa: B023
        method.end_task(0)
    for name, value in whole.penalty.importance.items():
        assert torch.equal(value, resumed.penalty.importance[name])
        assert value.max() > 0
    assert whole.state_bytes() == resumed.state_bytes()


def test_memory_is_three_times_the_backbone(tmp_path: Path) -> None:
    config = small("si", tmp_path)
    result = run(config)
    heads = 3 * (2 * 64 + 2) * 4
    assert result.state_bytes == 3 * (result.model_bytes - heads)


def test_without_a_gradient_a_weight_has_no_path() -> None:
    model, x, _ = problem()
    method = SI(lab(model), SIOptions())
    method.start_task(0)
    batch = Batch(x, torch.zeros(40), 0)
    optimizer = method.optimizer(0, Phase())
    method.after_backward(batch, Phase())
    optimizer.step()
    method.after_step(batch, Phase())
    assert all(float(p.abs().max()) == 0 for p in method.epoch_state()["path"].values())
