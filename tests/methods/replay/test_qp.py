"""GEM's quadratic program against values worked out by hand and a slow bound-constrained solver."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from nscl.methods.replay.qp import Array, QPError, solve_dual


def solved(G: Array, g: Array, *, margin: float = 0.0, eps: float = 0.0) -> Array:
    return g + G.T @ solve_dual(G @ G.T, G @ g, margin=margin, eps=eps)


@pytest.mark.parametrize(
    ("g", "rows", "margin", "eps", "expected"),
    [
        ((1, 1), [(-1, 0)], 0.0, 0.0, (0, 1)),  # docs/methods.md, small case 14
        ((1, 1), [(-1, 0)], 0.5, 1e-3, (0.000999, 1)),
        ((0.1, 1), [(-1, 0)], 0.5, 1e-3, (-0.4, 1)),  # docs/methods.md, small case 15
        ((1, 1), [(-1, 0), (0, -1)], 0.0, 0.0, (0, 0)),
        ((1, 1), [(-1, 0), (0, 1)], 0.5, 1e-3, (0.000999, 1.5)),
    ],
)
def test_values_of_the_specification(
    g: tuple[float, ...],
    rows: list[tuple[float, ...]],
    margin: float,
    eps: float,
    expected: tuple[float, ...],
) -> None:
    found = solved(np.array(rows, float), np.array(g, float), margin=margin, eps=eps)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_weight_of_a_single_constraint_has_a_closed_form() -> None:
    """v = max(margin, −⟨g, g_1⟩ / (|g_1|² + eps))."""
    for slope, margin in [(-1.0, 0.5), (-0.1, 0.5), (-1.0, 0.0)]:
        (v,) = solve_dual(np.array([[1.0]]), np.array([slope]), margin=margin, eps=1e-3)
        assert v == pytest.approx(max(margin, -slope / 1.001), rel=1e-12)
    assert solve_dual(np.eye(1), np.array([-1.0])) == pytest.approx([0.999001], abs=1e-6)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, Array]:
    """Gradients of up to 8 tasks, also more tasks than parameters, in float64."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tasks, parameters = draw(st.integers(1, 8)), draw(st.integers(1, 12))
    G = rng.standard_normal((tasks, parameters))
    return G, rng.standard_normal(parameters) * 10 ** rng.uniform(-2, 2)


def slowly(P: Array, q: Array, margin: float) -> Array:
    """The same minimum by a general solver with bounds."""
    found = minimize(
        lambda v: 0.5 * v @ P @ v + q @ v,
        np.full(len(q), margin + 1.0),
        jac=lambda v: P @ v + q,
        bounds=[(margin, None)] * len(q),
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 5_000},
    )
    return np.asarray(found.x)


@given(problems(), st.sampled_from([0.0, 0.1, 0.5, 3.0]), st.sampled_from([1e-3, 0.1, 0.0]))
def test_it_equals_a_slow_solver(problem: tuple[Array, Array], margin: float, eps: float) -> None:
    G, g = problem
    P, q = G @ G.T + eps * np.eye(len(G)), G @ g
    fast, slow = solve_dual(G @ G.T, q, margin=margin, eps=eps), slowly(P, q, margin)
    scale = np.abs(P).sum() * max(1.0, float(np.abs(slow).max())) ** 2 + float(np.abs(q).sum())

    def value(v: Array) -> float:
        return float(0.5 * v @ P @ v + q @ v)

    assert np.all(fast >= margin)
    assert value(fast) <= value(slow) + 1e-12 * scale
    # Several v may be best where the Gram matrix is singular; the vector they make is one.
    difference = np.linalg.norm(G.T @ (fast - slow))
    assert difference <= 1e-5 * (np.linalg.norm(g) + np.linalg.norm(G.T @ slow))


@given(problems())
def test_without_margin_it_is_the_nearest_vector_that_harms_no_task(
    problem: tuple[Array, Array],
) -> None:
    G, g = problem
    found = solved(G, g)
    size = np.linalg.norm(g)
    assert np.all(G @ found >= -1e-9 * size * np.linalg.norm(G, axis=1))
    assert found @ (found - g) == pytest.approx(0.0, abs=1e-9 * size**2)  # Moreau's theorem
    assert np.linalg.norm(found) <= size * (1 + 1e-12)
    if np.all(G @ g >= 0):
        np.testing.assert_array_equal(found, g)


@given(problems(), st.integers(0, 2**32 - 1))
def test_sizes_of_single_gradients_do_not_matter_to_the_projection(
    problem: tuple[Array, Array], seed: int
) -> None:
    G, g = problem
    sizes = 10 ** np.random.default_rng(seed).uniform(-6, 6, len(G))
    size = float(np.linalg.norm(g))
    np.testing.assert_allclose(solved(sizes[:, None] * G, g), solved(G, g), atol=1e-6 * size)


def test_tasks_with_the_same_gradient_or_with_none_are_allowed() -> None:
    twice = np.array([[-1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(solved(twice, np.array([1.0, 1.0])), (0, 1), atol=1e-12)
    nothing = solve_dual(np.zeros((2, 2)), np.zeros(2), margin=0.5, eps=0.0)
    np.testing.assert_array_equal(nothing, (0.5, 0.5))


@pytest.mark.parametrize(
    ("gram", "products", "message"),
    [
        (np.array([[np.nan]]), np.array([-1.0]), "not finite"),
        (np.array([[1.0]]), np.array([-np.inf]), "not finite"),
        (np.eye(2), np.array([-1.0]), "t × t"),
        (np.zeros((0, 0)), np.zeros(0), "t × t"),
        (np.zeros((1, 1)), np.array([-1.0]), "no minimum"),
    ],
)
def test_what_cannot_be_solved_says_so(gram: Array, products: Array, message: str) -> None:
    with pytest.raises(QPError, match=message):
        solve_dual(gram, products, margin=0.0, eps=0.0)
