"""Distillation losses against values computed by hand and sums written out."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nscl.methods.distillation.gd_wild.losses import unsureness
from nscl.methods.distillation.losses import (
    kl_from,
    kl_per_head,
    softened_cross_entropy,
    softened_kl,
    widened,
)
from tests.methods.labs import OperationCount

OLD = torch.tensor([2.0, 0.0], dtype=torch.float64)
T = 2.0


def gradient(loss_of: object, factor: float = 1.0) -> Tensor:
    new = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (factor * loss_of(new, OLD, temperature=T)).backward()  # type: ignore[operator]
    assert new.grad is not None
    return new.grad


def test_the_values_of_row_13() -> None:
    new = torch.zeros(2, dtype=torch.float64)
    assert (OLD / T).softmax(0).tolist() == pytest.approx([0.731059, 0.268941], abs=1e-6)
    assert float(softened_cross_entropy(new, OLD, temperature=T)) == pytest.approx(
        0.693147, abs=1e-6
    )
    assert float(softened_kl(new, OLD, temperature=T)) == pytest.approx(0.110944, abs=1e-6)


@pytest.mark.parametrize("loss", [softened_cross_entropy, softened_kl])
def test_the_gradients_of_row_13(loss: object) -> None:
    assert gradient(loss).tolist() == pytest.approx([-0.115529, 0.115529], abs=1e-6)
    assert gradient(loss, T**2).tolist() == pytest.approx([-0.462117, 0.462117], abs=1e-6)


def test_nothing_pulls_where_the_student_agrees() -> None:
    new = OLD.clone().requires_grad_()
    loss = softened_kl(new, OLD, temperature=T)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert new.grad is not None
    assert new.grad.abs().max() < 1e-12


def rows(seed: int, samples: int, sizes: list[int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, samples, sum(sizes))
    student, teacher = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return student, teacher


@given(
    seed=st.integers(0, 100),
    samples=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    temperature=st.floats(0.5, 8),
)
def test_per_head_equals_the_sum_written_out(
    seed: int, samples: int, sizes: list[int], temperature: float
) -> None:
    student, teacher = rows(seed, samples, sizes)
    truth, start = 0.0, 0
    for size in sizes:
        for row in range(samples):
            z = [v / temperature for v in student[row, start : start + size].tolist()]
            w = [v / temperature for v in teacher[row, start : start + size].tolist()]
            p = [math.exp(v) / sum(map(math.exp, z)) for v in z]
            q = [math.exp(v) / sum(map(math.exp, w)) for v in w]
            truth += sum(b * math.log(b / a) for a, b in zip(p, q, strict=True)) / samples
        start += size
    found = kl_per_head(student, teacher, sizes, temperature=temperature)
    mean = kl_per_head(student, teacher, sizes, temperature=temperature, over_heads="mean")
    assert float(found) == pytest.approx(truth, abs=1e-10)
    assert float(mean) == pytest.approx(truth / len(sizes), abs=1e-10)


@given(seed=st.integers(0, 100), temperature=st.floats(0.5, 8))
def test_cross_entropy_and_kl_differ_by_the_teachers_entropy(seed: int, temperature: float) -> None:
    student, teacher = rows(seed, 3, [4])
    q = (teacher / temperature).softmax(1)
    cross_entropy = softened_cross_entropy(student, teacher, temperature=temperature)
    gap = cross_entropy - softened_kl(student, teacher, temperature=temperature).mean()
    assert torch.allclose(gap, -(q * q.log()).sum(1).mean(), atol=1e-10)


def test_softening_logits_is_taking_roots_of_probabilities() -> None:
    _, teacher = rows(0, 5, [6])
    roots = teacher.softmax(1) ** (1 / T)
    assert torch.allclose((teacher / T).softmax(1), roots / roots.sum(1, keepdim=True))


def test_every_head_has_a_softmax_of_its_own() -> None:
    """A constant added to one head's logits changes nothing; one softmax over all would differ."""
    student, teacher = rows(1, 5, [3, 3])
    shifted = student + torch.tensor([7.0] * 3 + [0.0] * 3, dtype=torch.float64)
    before, after = (kl_per_head(s, teacher, (3, 3), temperature=T) for s in (student, shifted))
    assert float(before) == pytest.approx(float(after), abs=1e-12)
    assert float(softened_kl(shifted, teacher, temperature=T).mean()) > float(before) + 0.1


def test_heads_of_unequal_width_have_the_gradient_written_out() -> None:
    """And not one operation more for more of them."""
    student, teacher = rows(2, 5, [2, 4, 1, 3])
    student.requires_grad_()
    kl_per_head(student, teacher, (2, 4, 1, 3), temperature=T).backward()
    p, q = (
        torch.cat([(part / T).softmax(1) for part in z.detach().split([2, 4, 1, 3], 1)], 1)
        for z in (student, teacher)
    )
    assert student.grad is not None
    assert torch.allclose(student.grad, (p - q) / T / 5, atol=1e-14)

    counts = []
    for sizes in ([2, 4], [2, 4, 1, 3, 5, 2, 2, 4]):
        student, teacher = rows(3, 5, sizes)
        with OperationCount() as operations:
            kl_per_head(student.requires_grad_(), teacher, sizes, temperature=T).backward()
        counts.append(operations.count)
    assert counts[0] == counts[1]


HALF = {
    "cross entropy": lambda z, w: softened_cross_entropy(z, w, temperature=T),
    "kl": lambda z, w: softened_kl(z, w, temperature=T).mean(),
    "equal heads": lambda z, w: kl_per_head(z, w, (3, 3), temperature=T),
    "unequal heads": lambda z, w: kl_per_head(z, w, (2, 4), temperature=T),
    "given target": lambda z, w: kl_from(widened(w).softmax(-1), z).mean(),
    "unsureness": lambda z, w: unsureness(z).mean(),
}


@pytest.mark.parametrize("what", HALF)
def test_small_gaps_survive_bfloat16(what: str) -> None:
    """Logits one step of bfloat16 apart: the loss is theirs, not the rounding's."""
    _, teacher = rows(4, 7, [6])
    teacher = (teacher / 3).bfloat16()
    student = torch.nextafter(teacher, torch.full_like(teacher, torch.inf))
    student[:, ::2] = teacher[:, ::2]
    truth = HALF[what](student.double(), teacher.double())
    with torch.autocast("cpu", torch.bfloat16):
        found = HALF[what](student, teacher)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(truth), rel=1e-6, abs=3e-7)  # float32's rounding


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_wider_logits_stay_as_they_are(precision: torch.dtype) -> None:
    logits = torch.randn(3, dtype=precision)
    assert widened(logits) is logits


def test_a_target_with_zeros_is_no_trap() -> None:
    logits = torch.tensor([[300.0, 0.0, -300.0]], requires_grad=True)
    loss = kl_from(torch.tensor([[1.0, 0.0, 0.0]]), logits)
    loss.sum().backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
