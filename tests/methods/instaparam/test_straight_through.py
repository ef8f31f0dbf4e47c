"""Relaxed trials: the draws of the hard ones, and slopes of the expected reward by switching."""

import itertools

import torch

from nscl.methods.instaparam.controller import drawn, reward
from nscl.methods.instaparam.straight_through import relaxed, reward_slope


def test_a_relaxed_trial_is_the_hard_one_at_any_temperature() -> None:
    p = torch.rand(400, 3, 4, dtype=torch.float64) * 0.98 + 0.01
    for heat in (1.0, 0.5):
        torch.manual_seed(1)
        soft = relaxed(p, temperature=heat)
        torch.manual_seed(1)
        assert torch.equal(soft > 0.5, drawn(p))
        assert ((soft > 0) & (soft < 1)).all()


def test_colder_trials_are_nearer_to_hard_ones() -> None:
    p = torch.full((1000, 1, 1), 0.5)
    distances = []
    for heat in (1.0, 0.5):
        torch.manual_seed(0)
        soft = relaxed(p, temperature=heat)
        distances.append(float((soft - (soft > 0.5).float()).abs().mean()))
    assert distances[1] < 0.8 * distances[0]


def test_certain_probabilities_have_finite_trials_and_slopes() -> None:
    p = torch.tensor([[[1e-6, 1 - 1e-6]]], dtype=torch.float32).requires_grad_()
    soft = relaxed(p, temperature=0.5)
    soft.sum().backward()
    assert torch.isfinite(soft).all()
    assert p.grad is not None
    assert torch.isfinite(p.grad).all()


def test_the_slope_is_what_switching_a_branch_changes() -> None:
    """With a chance that is linear in the branches, the expected reward is known for any trial."""
    chosen = {"gain": 3.0, "miss": -0.5, "exponent": 0.7}
    by_branch = torch.randn(1, 2, 2) * 0.1

    def expected(policy: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
        yes, no = torch.tensor([True]), torch.tensor([False])
        return chance * reward(policy, yes, **chosen) + (1 - chance) * reward(policy, no, **chosen)

    for bits in itertools.product((False, True), repeat=4):
        trial, chance = torch.tensor(bits).view(1, 2, 2), torch.tensor([0.6])
        slope = reward_slope(trial, chance, by_branch, **chosen)
        for place in itertools.product((0,), (0, 1), (0, 1)):
            on, off = trial.clone(), trial.clone()
            on[place], off[place] = True, False
            # Product rule: through what is spared at this chance, and through the chance.
            spared = expected(on, chance) - expected(off, chance)
            right = expected(trial, torch.ones(1)) - expected(trial, torch.zeros(1))
            true = spared + by_branch[place] * right
            assert torch.allclose(slope[place], true, atol=1e-5)
