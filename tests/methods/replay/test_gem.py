"""GEM: its step against the slow truth, its guarantee, its switches, and a run on the digits."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.optim import Adam

from nscl.data.images.augment import normalise
from nscl.methods.replay.gem import GEM, GEMOptions
from nscl.training.experiment import run
from tests.methods.digits import backward_transfer, last_epoch, written_options
from tests.methods.labs import (
    Normed,
    Steps,
    batch_samples,
    kept_samples,
    lab,
    memory_loss,
    normed,
    operations_per_step,
    slow_gradient,
    trained,
    weights,
)
from tests.runs import small

WIDTHS = (2, 3, 2, 4)


def slow_truth(g: Tensor, G: Tensor, margin: float, eps: float) -> Tensor:
    """The dual by a general solver with bounds."""
    if bool((G @ g >= 0).all()):
        return g
    P, q = (G @ G.T).numpy() + eps * np.eye(len(G)), (G @ g).numpy()
    found = minimize(
        lambda v: 0.5 * v @ P @ v + q @ v,
        np.full(len(q), margin + 1.0),
        jac=lambda v: P @ v + q,
        bounds=[(margin, None)] * len(q),
        method="SLSQP",
        options={"ftol": 1e-18, "maxiter": 2_000},
    )
    return g + G.T @ torch.from_numpy(found.x)


@pytest.mark.parametrize(("scenario", "margin"), [("task", 0.5), ("task", 0.0), ("domain", 0.5)])
def test_a_step_is_the_slow_truth_in_float64(scenario: str, margin: float) -> None:
    widths = WIDTHS if scenario == "task" else (3, 3, 3, 3)
    steps = trained(GEM, 3, widths, margin=margin, scenario=scenario)
    method, model = steps.method, steps.method.model
    assert isinstance(method, GEM)
    for start in (0, 5, 10, 15, 20, 25):
        batch = steps.batch(5, start=start)
        g = slow_gradient(model, batch_samples(batch))
        G = torch.stack([slow_gradient(model, kept_samples(method, k)) for k in range(3)])
        expected = slow_truth(g, G, margin, 1e-3)
        before = weights(model)
        steps.step(batch)
        found = (before - weights(model)) / 0.1
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(g.norm()))
    figures = method.metrics()
    assert 0 < figures["violated"] <= 1
    assert 0 < figures["constraints"] <= figures["violated"]
    assert figures["angle"] > 0
    assert figures["unsolved"] == 0


def test_under_plain_sgd_no_old_task_gets_worse_where_the_plain_gradient_makes_one_worse() -> None:
    """First order: with a small enough rate the change of a loss is its inner product."""
    steps = trained(GEM, 3, WIDTHS, margin=0.0, eps=0.0)
    method = steps.method
    assert isinstance(method, GEM)
    for group in steps.optimizer.param_groups:
        group["lr"] = 1e-6
    harmed = 0
    for start in range(0, 30, 5):
        batch = steps.batch(5, start=start)
        before = [memory_loss(method, k) for k in range(3)]
        g = slow_gradient(method.model, batch_samples(batch))
        rows = [slow_gradient(method.model, kept_samples(method, k)) for k in range(3)]
        harmed += any(float(row @ g) < -1e-6 for row in rows)
        steps.step(batch)
        after = [memory_loss(method, k) for k in range(3)]
        rises = [late - early for late, early in zip(after, before, strict=True)]
        assert max(rises) <= 1e-10
    assert harmed >= 3


def test_a_margin_helps_every_old_task_as_soon_as_one_is_harmed() -> None:
    steps = trained(GEM, 3, WIDTHS, margin=0.5)
    before = steps.method.model.heads[1].weight.clone()
    while steps.method.metrics().get("violated", 0.0) == 0.0:
        steps.step(steps.batch(5))
    assert steps.method.metrics()["weight"] > 0
    assert not torch.equal(steps.method.model.heads[1].weight, before)


def test_old_heads_can_be_frozen() -> None:
    steps = trained(GEM, 3, WIDTHS, old_heads=False, margin=0.5)
    heads = [steps.method.model.heads[k].weight.clone() for k in range(3)]
    for start in range(0, 30, 5):
        steps.step(steps.batch(5, start=start))
    assert steps.method.metrics()["violated"] > 0
    for k, head in enumerate(heads):
        assert torch.equal(steps.method.model.heads[k].weight, head)


@pytest.mark.parametrize("learn", [True, False])
def test_heads_own_their_memory_again_when_a_phase_ends(learn: bool) -> None:
    steps = trained(GEM, 3, WIDTHS, old_heads=learn)
    heads = steps.method.model.heads
    shared = heads[0].weight.untyped_storage().data_ptr()
    assert (heads[1].weight.untyped_storage().data_ptr() == shared) is learn
    values = [p.clone() for p in heads.parameters()]
    steps.method.leave_phase(3, steps.phase)
    places = {p.untyped_storage().data_ptr() for p in heads.parameters()}
    assert len(places) == len(values)
    assert all(torch.equal(p, v) for p, v in zip(heads.parameters(), values, strict=True))


def test_a_memory_whose_gradient_is_not_finite_is_counted_and_g_is_used() -> None:
    steps = trained(GEM, 2, WIDTHS)
    method = steps.method
    with torch.no_grad():
        method.model.heads[0].bias.fill_(torch.nan)  # nothing of the current task sees it
    batch = steps.batch(5)
    expected = slow_gradient(method.model, batch_samples(batch))
    before = method.model.backbone.layers[0].weight.detach().clone()
    steps.step(batch)
    assert method.metrics()["unsolved"] == 1
    moved = (before - method.model.backbone.layers[0].weight.detach()) / 0.1
    torch.testing.assert_close(moved.reshape(-1), expected[: moved.numel()])


def test_steps_cost_more_with_every_task_as_documented() -> None:
    early, late = operations_per_step(GEM, (1, 9))
    assert late > 3 * early


@pytest.mark.parametrize(("mode", "passes"), [("train", 1 + 3), ("eval", 1)])
def test_memory_passes_move_running_statistics_only_in_train_mode(mode: Any, passes: int) -> None:
    """Faithful to the original: one update for the batch and one per old task."""
    steps = normed(GEM, memory_bn=mode)
    model = steps.method.model
    steps.step(steps.batch())
    assert int(model.backbone[2].num_batches_tracked) == passes
    assert all(module.training for module in model.modules())


def test_old_tasks_pass_in_their_order_and_the_batch_last() -> None:
    """So that the running statistics are the current batch's more than any memory's."""
    steps = normed(GEM, per_class=4)
    method, backbone = steps.method, steps.method.model.backbone
    assert isinstance(method, GEM)
    assert isinstance(backbone, Normed)
    memories = [normalise(method.memory.task(k).images, (0.5,), (0.25,)) for k in range(3)]
    expected = backbone.running_mean_of([*memories, steps.batch().images])
    steps.step(steps.batch())
    torch.testing.assert_close(backbone[2].running_mean, expected)


def test_one_pass_per_old_task_and_only_small_matrices_reach_the_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, ...]] = []
    steps = trained(GEM, 3, WIDTHS)
    method = steps.method
    assert isinstance(method, GEM)
    original = method._weights

    def recorded(gram: Tensor, products: Tensor) -> Tensor:
        seen.extend((tuple(gram.shape), tuple(products.shape)))
        assert gram.dtype == products.dtype == torch.float64
        return original(gram, products)

    monkeypatch.setattr(method, "_weights", recorded)
    passes = []
    method.model.backbone.register_forward_hook(lambda *_: passes.append(1))
    for start in range(0, 30, 5):
        steps.step(steps.batch(5, start=start))
    assert len(passes) == 6 * (1 + 3)
    assert set(seen) == {(3, 3), (3,)}


def test_a_step_that_harms_nobody_is_left_alone_and_adam_moves_no_old_head_in_it() -> None:
    """Not even by momentum, which a gradient of zero would allow."""
    small_lab = lab((2, 2), optimizer=Adam)
    method = GEM(small_lab, GEMOptions(per_class=20))
    method.end_task(0)
    steps = Steps(method, 1)
    kinds = []
    for start in (0, 10, 20, 30) * 4:
        before = method.averages.state_dict()["sums"].get("violated", 0.0)
        head = small_lab.model.head(0).weight.clone()
        steps.step(steps.batch(start=start))
        kinds.append(method.averages.state_dict()["sums"]["violated"] > before)
        assert torch.equal(small_lab.model.head(0).weight, head) is not kinds[-1]
        assert all((p.grad is not None) is kinds[-1] for p in old_heads(steps))
    assert (True, False) in pairwise(kinds)


def old_heads(steps: Steps) -> list[nn.Parameter]:
    """What the optimizer holds of old heads: its last group."""
    found: list[nn.Parameter] = steps.optimizer.param_groups[-1]["params"]
    return found


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_a_run_on_the_digits_shows_the_constraints_and_the_budget(
    scenario: str, tmp_path: Path
) -> None:
    result = run(small("gem", tmp_path, data={"scenario": scenario}, options={"per_class": 7}))
    figures = last_epoch(tmp_path, result)
    assert figures["method/violated"] > 0
    assert figures["method/angle"] > 0
    assert figures["method/unsolved"] == 0
    assert written_options(tmp_path, result)["per_class"] == 7
    assert result.state_bytes == 2 * 2 * 7 * (64 + 8)  # two old tasks of two classes
    assert result.stores == "data"


@pytest.mark.slow  # one seed: test_quick_digits
def test_it_forgets_less_than_fine_tuning_for_every_seed() -> None:
    pairs = zip(backward_transfer("gem"), backward_transfer("finetune"), strict=True)
    assert all(mine > plain for mine, plain in pairs)
