"""Old answers as a loss: against published numbers, torch's own divergence, and what it refuses."""

import pytest
import torch
import torch.nn.functional as F

import nscl


def test_against_the_published_numbers() -> None:
    new = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    loss = nscl.distillation(new, torch.tensor([[2.0, 0.0]], dtype=torch.float64))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.110944, abs=1e-6)
    assert new.grad is not None
    assert new.grad[0].tolist() == pytest.approx([-0.115529, 0.115529], abs=1e-6)


def test_it_is_a_mean_over_samples_and_positions_and_a_sum_over_heads() -> None:
    new, old = torch.randn(2, 4, 3, 5).double()
    each = [
        F.kl_div((new[..., a:b] / 3).log_softmax(-1), (old[..., a:b] / 3).softmax(-1),
                 reduction="none").sum(-1).mean()
        for a, b in ((0, 2), (2, 5))
    ]  # fmt: skip
    found = nscl.distillation(new, old, temperature=3.0, sizes=(2, 3))
    assert float(found) == pytest.approx(float(sum(each)))
    assert float(nscl.distillation(old, old)) == pytest.approx(0.0, abs=1e-12)


def test_what_cannot_be_compared_is_refused() -> None:
    a, b = torch.randn(2, 4), torch.randn(2, 5)
    with pytest.raises(ValueError, match=r"\(2, 4\) and old ones \(2, 5\)"):
        nscl.distillation(a, b)
    with pytest.raises(ValueError, match=r"sizes \[2, 3\] add up to 5, not to 4"):
        nscl.distillation(a, a, sizes=(2, 3))
    with pytest.raises(ValueError, match="temperature"):
        nscl.distillation(a, a, temperature=0.0)
