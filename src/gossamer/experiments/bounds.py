"""Appendix B: the inequalities (45) to (54) that prove Theorem 2, evaluated on a measured trajectory.

w_S^t is the agents' mean. Three constants are measured along the run: gamma from C; c_L, the Lipschitz constant of the
gradient (B1), as the steepest secant of the gradient between w^t and w_S^t or between w_S^t and w_S^(t+1), the pairs of
points for which the proof uses it; and G, the bound on the gradient (B2), as the largest |grad L(w^t)|. c_L and G are
lower estimates. Every right-hand side grows with both, so an inequality that holds with them holds with the true ones.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Numbers `eta`, `decay` and `radius` (spectral radius of C - 11^T/m), and a list for each of theory._measure's values
Trajectory = Mapping[str, Any]
Values = NDArray[np.float64]  # one for each step


def make_table(run: Trajectory) -> dict[str, Values]:
    """Columns of a CSV table: the measurements of each step with their bounds."""
    left, right = descent_sums(run)
    return {
        "apart": np.array(run["apart"]),
        "apart_bound": disagreement_bound(run),
        "stationarity": np.array(run["stationarity"]),
        "best": best(run),
        "best_bound": best_bound(run),
        "sum": left,
        "sum_bound": right,
        "slope": np.array(run["slope"]),
        "loss": np.array(run["loss"]),
    }


def step_sizes(run: Trajectory) -> Values:
    """eta^t = eta / (1 + decay t)."""
    return np.asarray(run["eta"] / (1.0 + run["decay"] * np.arange(len(run["apart"]))))


def best(run: Trajectory) -> Values:
    """g_best^t, eq. (20): the least g^n for n = 1..t, so NaN at t = 0."""
    g = np.array(run["stationarity"])
    return np.concatenate([[np.nan], np.minimum.accumulate(g[1:])])


def largest_gradient(run: Trajectory) -> float:
    """Lower estimate of the bound G of (B2), at the agents' own weights."""
    return float(np.max(run["slope"]))


def lipschitz(run: Trajectory) -> float:
    """Lower estimate of the Lipschitz constant c_L of (B1)."""
    return float(np.max(run["secant"]))


def disagreement_bound(run: Trajectory) -> Values:
    """Eq. (45): |w_perp^t| <= (1 - gamma)^t |w_perp^0| + G sum_{l=1..t} (1 - gamma)^(t-l) eta^(l-1)."""
    G, eta = largest_gradient(run), step_sizes(run)
    values = [run["apart"][0]]
    for before in eta[:-1]:
        values.append(run["radius"] * values[-1] + G * before)
    return np.array(values)


def descent_slack(run: Trajectory) -> tuple[Values, Values]:
    """Right-hand side minus left-hand side of (49) and of (50c), for every step but the last."""
    eta, c, G = step_sizes(run)[:-1], lipschitz(run), largest_gradient(run)
    loss, g, inner, projected = (np.array(run[name])[:-1] for name in ("loss", "stationarity", "inner", "projected"))
    after = np.array(run["loss"])[1:]
    right_49 = loss - eta * inner + c / 2 * eta**2 * projected
    right_50c = loss - eta * g + c / 2 * G**2 * eta**2 + c * G * eta * disagreement_bound(run)[:-1]
    return right_49 - after, right_50c - after


def descent_sums(run: Trajectory) -> tuple[Values, Values]:
    """Both sides of (51): sum_{n=0..t} eta^n g^n, and its bound."""
    eta, c, G = step_sizes(run), lipschitz(run), largest_gradient(run)
    drift = c * G * np.cumsum(eta * disagreement_bound(run))  # the two parts of (45) are terms 2 and 4 of (51)
    bound = run["loss"][0] + drift + c / 2 * G**2 * np.cumsum(eta**2)
    return np.cumsum(eta * np.array(run["stationarity"])), bound


def best_bound(run: Trajectory) -> Values:
    """The right-hand side of (52)."""
    return np.asarray(descent_sums(run)[1] / np.cumsum(step_sizes(run)))


def rate_bound(run: Trajectory) -> tuple[float, float]:
    """A and B of eq. (53), which under (C1) is A / (t + 1) + B; B is the limit (54)."""
    eta, c, G, gap = run["eta"], lipschitz(run), largest_gradient(run), 1 - run["radius"]
    return run["loss"][0] / eta + c * G * run["apart"][0] / gap, c * G**2 * (2 + gap) / (2 * gap) * eta
