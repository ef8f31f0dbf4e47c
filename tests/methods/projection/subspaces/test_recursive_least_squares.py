"""Recursive least squares against the inverse it stands for."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nscl.core.covariance.convolution.unfold import Geometry, Patches, unfold
from nscl.core.covariance.observations import InputRows, TokenIds
from nscl.core.memory import Memory
from nscl.errors import UnsupportedError
from nscl.methods.projection.subspaces.recursive_least_squares import (
    Dense,
    Recursion,
    mean_rows,
    recursion,
)

EYE = torch.eye(5, dtype=torch.float64)[None]


def inverse(batches: list[tuple[Tensor, float]], d: int) -> Tensor:
    """``(I + Σ x xᵀ/α)⁻¹``, written down."""
    total = torch.eye(d, dtype=torch.float64)
    for rows, alpha in batches:
        for x in rows.reshape(-1, d):
            total = total + torch.outer(x, x) / alpha
    return torch.linalg.inv(total)


@pytest.mark.parametrize(
    ("alpha", "expected"), [(1.0, 0.5), (0.01, 0.00990099), (1e-9, 0.0)], ids=str
)
def test_row_20(alpha: float, expected: float) -> None:
    P = recursion(torch.eye(2).double()[None], torch.tensor([[[1.0, 0.0]]]).double(), alpha)[0]
    assert P.flatten().tolist() == pytest.approx([expected, 0.0, 0.0, 1.0], abs=1e-8)
    assert (torch.ones(2).double() @ P).tolist() == pytest.approx([expected, 1.0], abs=1e-8)


@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    alpha=st.floats(1e-3, 10.0),
)
def test_the_block_form_is_the_sequential_form_is_the_inverse(
    seed: int, counts: list[int], alpha: float
) -> None:
    torch.manual_seed(seed)
    block, one_by_one, taken = EYE, EYE, []
    for i, count in enumerate(counts):  # more rows than features, too
        rows, now = torch.randn(1, count, 5).double(), alpha * 0.5**i
        taken.append((rows, now))
        block = recursion(block, rows, now)
        for x in rows[0]:  # Sherman–Morrison, as published
            k = one_by_one[0] @ x
            one_by_one = one_by_one - torch.outer(k, k)[None] / (now + x @ k)
    assert torch.allclose(block, one_by_one, atol=1e-10)
    assert torch.allclose(block[0], inverse(taken, 5), atol=1e-10)


def test_stays_positive_and_symmetric_over_many_hard_updates() -> None:
    P = EYE
    for _ in range(2000):
        P = recursion(P, torch.randn(1, 1, 5).double() * torch.arange(5), 1e-5)
    assert torch.linalg.eigvalsh(P).min() > 0
    assert torch.equal(P, P.mT)
    assert P[0, 0, 0] == pytest.approx(1.0)  # no row ever had a part in the first direction


def test_a_dense_projection_takes_biases_along_and_follows_its_matrix() -> None:
    P = torch.randn(2, 4, 4).double()
    weight, bias = torch.randn(2, 3, 3), torch.randn(2, 3)
    stacked = torch.cat([weight, bias[..., None]], -1).double() @ P
    projection = Dense(P, removes=False)
    seen = projection.to(device=weight.device, dtype=weight.dtype).groups(1, 2)
    projection.apply_(weight, [bias])
    assert torch.allclose(weight.double(), stacked[..., :3], atol=1e-6)
    assert torch.allclose(bias.double(), stacked[..., 3], atol=1e-6)
    P.zero_()
    rest = torch.ones(1, 3, 4)
    seen.apply_(rest)
    assert not rest.any()


def test_rows_of_a_batch() -> None:
    values = torch.arange(6.0).reshape(1, 3, 2)
    assert mean_rows(InputRows(values), width=3, constant=0).tolist() == [[[2.0, 3.0, 1.0]]]
    assert mean_rows(InputRows(values), width=4, constant=1).tolist() == [[[2.0, 3.0, 0.0, 1.0]]]
    geometry = Geometry((3, 3), (2, 2), (1, 1), ((1, 1), (1, 1)), groups=2)
    images = torch.randn(4, 4, 5, 5).double()
    rows = mean_rows(Patches(images, geometry), width=18, constant=None)
    assert torch.allclose(rows, unfold(images.mean(0, keepdim=True), geometry))
    with pytest.raises(TypeError, match="tokens"):
        mean_rows(TokenIds(torch.tensor([1])), width=2, constant=None)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 2, groups=2, bias=False),
        nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip


def test_every_layer_of_a_network_follows_its_own_mean_inputs() -> None:
    model = network().double()
    model(torch.zeros(1, 2, 4, 4).double())
    recursions = Recursion(model)
    batches = [torch.randn(6, 2, 4, 4).double() for _ in range(3)]
    inputs: list[list[Tensor]] = [[], [], []]
    for x in batches:
        with recursions.watching():
            model(x)
        recursions.update(len(x), lambda block: 0.1 if block.kind == "Conv2d" else 0.5)
        maps = [x]
        for layer in model:
            maps.append(layer(maps[-1]))
        first = Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
        second = Geometry((2, 2), (1, 1), (1, 1), ((0, 0), (0, 0)), 2)
        one = unfold(maps[0].mean(0, keepdim=True), first)[0]
        inputs[0].append(torch.cat([one, torch.ones(len(one), 1)], 1))
        inputs[1].append(unfold(maps[2].mean(0, keepdim=True), second))
        inputs[2].append(torch.cat([maps[4].mean(0), torch.ones(1)])[None])
    found = list(recursions.projectors.values())
    assert torch.allclose(found[0].basis[0], inverse([(r, 0.1) for r in inputs[0]], 19))
    for group in range(2):
        rows = [(r[group], 0.1) for r in inputs[1]]
        assert torch.allclose(found[1].basis[group], inverse(rows, 8))
    width = found[2].basis.shape[-1]
    assert torch.allclose(found[2].basis[0], inverse([(r, 0.5) for r in inputs[2]], width))
    for earlier, later in pairwise([recursions.free(), 1.0]):
        assert earlier < later
    spectrum = recursions.spectrum("0")
    assert spectrum.free == pytest.approx(float(found[0].basis[0].trace()))
    assert torch.allclose(spectrum.weights, 1 / (1 + spectrum.eigenvalues))


def test_steps_are_projected_by_the_matrix_of_the_moment() -> None:
    model = nn.Linear(4, 2).double()
    recursions = Recursion(model)
    memory = Memory(model, projector=lambda block, *_: (recursions.projectors[block.name], None))
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    memory.protect(optimizer)
    memory.load_state_dict({**memory.state_dict(), "projections": recursions.projectors})
    for _ in range(3):
        with recursions.watching():
            loss = model(torch.randn(8, 4).double()).square().sum()
        loss.backward()
        recursions.update(8, lambda block: 0.01)
        before = torch.cat([model.weight, model.bias[:, None]], 1).detach()
        gradient = torch.cat([model.weight.grad, model.bias.grad[:, None]], 1)  # type: ignore
        optimizer.step()
        optimizer.zero_grad()
        moved = torch.cat([model.weight, model.bias[:, None]], 1).detach() - before
        P = next(iter(recursions.projectors.values())).basis[0]
        assert torch.allclose(moved, -gradient @ P, atol=1e-12)


def test_embeddings_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"'0'.*mode=task_end"):
        Recursion(nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 2)))
