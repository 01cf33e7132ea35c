"""Problem (29) and the fastest mixing weights as semidefinite programs, solved by cvxpy: slow, plain, independent."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

with warnings.catch_warnings():  # optional solvers of cvxpy may be absent or old; that is no matter of ours
    warnings.simplefilter("ignore")
    import cvxpy as cp

Matrix = NDArray[np.float64]

TIGHT: dict[str, dict[str, Any]] = {
    "SCS": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000},
    "CLARABEL": {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8, "tol_feas": 1e-8},
}


def sparsest(
    links: NDArray[np.bool_],
    gap: float,
    nonnegative: bool = False,
    floors: Matrix | None = None,
    solver: str = "CLARABEL",
) -> tuple[float, Matrix]:
    """(29) for the needed links [m, m]: the optimum and a minimiser.

    The floors [m, m] are signed: C_kz >= floor where it is positive, C_kz <= floor where it is negative.
    """
    A = (~links & ~np.eye(len(links), dtype=bool)).astype(float)
    C, constraints = _mixing(len(links), 1.0 - gap, nonnegative)
    signed = np.zeros_like(A) if floors is None else floors
    for k, z in np.argwhere(signed):
        constraints.append(C[k, z] >= signed[k, z] if signed[k, z] > 0 else C[k, z] <= signed[k, z])
    return _solve(cp.sum(cp.multiply(A, cp.abs(C))), constraints, solver), np.asarray(C.value)


def fastest(links: NDArray[np.bool_], nonnegative: bool = False, solver: str = "CLARABEL") -> tuple[float, Matrix]:
    """The least spectral radius of C - 11^T/m over the C that are zero off the links, and such a C."""
    off = (~links & ~np.eye(len(links), dtype=bool)).astype(float)
    radius = cp.Variable()
    C, constraints = _mixing(len(links), radius, nonnegative)
    return _solve(radius, [*constraints, cp.multiply(off, C) == 0], solver), np.asarray(C.value)


def nearest(X: Matrix, radius: float, weight: float = 0.0) -> Matrix:
    """argmin ||C - X||^2 / 2 over the C of (29); with a weight, the radius is a variable that costs weight * radius."""
    reach = cp.Variable(nonneg=True) if weight else radius
    C, constraints = _mixing(len(X), reach, False)
    _solve(weight * reach + cp.sum_squares(C - X) / 2, constraints, "CLARABEL")
    return np.asarray(C.value)


def _mixing(m: int, radius: Any, nonnegative: bool) -> tuple[Any, list[Any]]:
    """C = C^T, C1 = 1, -radius I << C - 11^T/m << radius I; and C >= 0 if asked for."""
    C = cp.Variable((m, m), symmetric=True)
    apart, reach = C - np.full((m, m), 1.0 / m), radius * np.eye(m)
    return C, [cp.sum(C, axis=1) == 1, apart << reach, -reach << apart, *([C >= 0] if nonnegative else [])]


def _solve(objective: Any, constraints: list[Any], solver: str) -> float:
    problem = cp.Problem(cp.Minimize(objective), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=solver, **TIGHT[solver])
    assert problem.status == cp.OPTIMAL, problem.status
    return float(problem.value)
