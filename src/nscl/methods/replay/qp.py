"""GEM's quadratic program in its dual: as many unknowns as there are old tasks.

GEM looks for the vector closest to the gradient g that has a non-negative inner product with every
row of G, the gradients of the old tasks. In the dual (Lopez-Paz & Ranzato 2017, eq. 11) this is

    min_v ½ vᵀ(G Gᵀ + eps·1)v + (G g)ᵀv   subject to   v ≥ margin,      then  g̃ = g + Gᵀv,

in which only the t × t Gram matrix and G·g appear. The margin is a lower bound on v and eps is
added to the diagonal, both as in the authors' code (model/gem.py). With u = v − margin ≥ 0 and a
square root A of the matrix, P = AᵀA, it is a non-negative least-squares problem (docs/methods.md,
"GEM").
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from nscl.errors import NsclError

Array = NDArray[np.float64]
_TOLERANCE = 1e-6  # of the optimality conditions, relative to the terms they are the sum of


class QPError(NsclError, ArithmeticError):
    """The program has no solution that can be trusted: gradients that are not finite, usually."""


def solve_dual(gram: Array, products: Array, *, margin: float = 0.5, eps: float = 1e-3) -> Array:
    """The dual's v for ``gram`` = G·Gᵀ and ``products`` = G·g; checked, or a ``QPError``.

    >>> G, g = np.array([[-1.0, 0.0]]), np.array([1.0, 1.0])
    >>> v = solve_dual(G @ G.T, G @ g, margin=0.0, eps=0.0)
    >>> v.round(9), (g + G.T @ v).round(9)
    (array([1.]), array([0., 1.]))
    """
    matrix, vector = _checked(gram, products)
    matrix = (matrix + matrix.T) / 2 + eps * np.eye(len(matrix))
    # Unit diagonal first: tasks whose gradients differ by orders of magnitude count alike.
    diagonal = np.diag(matrix)
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 1.0)
    shifted = vector + margin * matrix.sum(axis=1)
    solution = scale * _non_negative(matrix * np.outer(scale, scale), shifted * scale) + margin
    _check_optimal(matrix, vector, solution, margin)
    return solution


def _checked(gram: Array, products: Array) -> tuple[Array, Array]:
    matrix, vector = np.asarray(gram, dtype=np.float64), np.asarray(products, dtype=np.float64)
    if vector.ndim != 1 or not len(vector) or matrix.shape != (len(vector), len(vector)):
        raise QPError(
            f"the Gram matrix must be t × t and the products t, not {matrix.shape} and "
            f"{vector.shape}"
        )
    if not (np.isfinite(matrix).all() and np.isfinite(vector).all()):
        raise QPError("the gradients' inner products are not finite: lower the learning rate")
    return matrix, vector


def _non_negative(matrix: Array, vector: Array) -> Array:
    """Minimise ½ uᵀ·matrix·u + vector·u over u ≥ 0.

    The root is taken from the eigenvalues, not from Cholesky: two tasks with the same gradient
    make a singular matrix, which is allowed with eps = 0.
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0)
    roots = np.sqrt(values[kept])
    target = -(vectors[:, kept].T @ vector) / roots
    length = float(np.linalg.norm(target))
    if length == 0:
        return np.zeros(len(vector))
    try:
        unit, _ = nnls(
            roots[:, None] * vectors[:, kept].T, target / length, maxiter=100 * len(vector)
        )
    except (RuntimeError, ValueError) as problem:
        raise QPError(f"non-negative least squares failed: {problem}") from problem
    return np.asarray(length * unit, dtype=np.float64)


def _check_optimal(matrix: Array, vector: Array, solution: Array, margin: float) -> None:
    """Each v lies on its bound with a slope that holds it there, or has no slope."""
    slope = matrix @ solution + vector
    size = np.abs(matrix) @ np.abs(solution) + np.abs(vector)
    above = solution > margin
    if not np.all(np.where(above, np.abs(slope), -slope) <= _TOLERANCE * size):
        raise QPError("the quadratic program has no minimum: the products are not those of a Gram")
