"""Appendix B: the inequalities (45) to (54) that prove Theorem 2, evaluated on a measured trajectory.

Three constants are measured along the run: gamma from C, G as the largest |grad L(w^t)|, and c_L as the steepest secant
of the gradient between w^t and w_S^t or between w_S^t and w_S^(t+1), the pairs of points for which the proof uses (B1).
G and c_L are lower estimates of the constants of (B1) and (B2). Every right-hand side grows with both, so an
inequality that holds with them holds with the true ones.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Trajectory = Mapping[str, Any]  # numbers `eta`, `decay`, `radius`, and lists of a value for each step; see `theory`
Values = NDArray[np.float64]  # one for each step


def table(found: Trajectory) -> dict[str, Values]:
    """Columns of a CSV table: the measurements of each step with their bounds."""
    left, right = descent_sums(found)
    return {
        "apart": np.array(found["apart"]),
        "apart_bound": disagreement_bound(found),
        "stationarity": np.array(found["stationarity"]),
        "best": best(found),
        "best_bound": best_bound(found),
        "sum": left,
        "sum_bound": right,
        "slope": np.array(found["slope"]),
        "loss": np.array(found["loss"]),
    }


def step_sizes(found: Trajectory) -> Values:
    """eta^t = eta / (1 + decay t)."""
    return np.asarray(found["eta"] / (1.0 + found["decay"] * np.arange(len(found["apart"]))))


def best(found: Trajectory) -> Values:
    """g_best^t, eq. (20): the least g^n for n = 1..t, so NaN at t = 0."""
    g = np.array(found["stationarity"])
    return np.concatenate([[np.nan], np.minimum.accumulate(g[1:])])


def largest_gradient(found: Trajectory) -> float:
    """G of (B2), measured at the agents' own weights."""
    return float(np.max(found["slope"]))


def lipschitz(found: Trajectory) -> float:
    """c_L of (B1), from below."""
    return float(np.max(found["secant"]))


def disagreement_bound(found: Trajectory) -> Values:
    """Eq. (45): |w_perp^t| <= (1 - gamma)^t |w_perp^0| + G sum_{l=1..t} (1 - gamma)^(t-l) eta^(l-1)."""
    G, eta = largest_gradient(found), step_sizes(found)
    values = [found["apart"][0]]
    for before in eta[:-1]:
        values.append(found["radius"] * values[-1] + G * before)
    return np.array(values)


def descent_slack(found: Trajectory) -> tuple[Values, Values]:
    """Right-hand side minus left-hand side of (49) and of (50c), for every step but the last."""
    eta, c, G = step_sizes(found)[:-1], lipschitz(found), largest_gradient(found)
    loss, g, inner, projected = (np.array(found[name])[:-1] for name in ("loss", "stationarity", "inner", "projected"))
    after = np.array(found["loss"])[1:]
    lemma = loss - eta * inner + c / 2 * eta**2 * projected
    whole = loss - eta * g + c / 2 * G**2 * eta**2 + c * G * eta * disagreement_bound(found)[:-1]
    return lemma - after, whole - after


def descent_sums(found: Trajectory) -> tuple[Values, Values]:
    """Both sides of (51): sum_{n=0..t} eta^n g^n, and its bound."""
    eta, c, G = step_sizes(found), lipschitz(found), largest_gradient(found)
    drift = c * G * np.cumsum(eta * disagreement_bound(found))  # the second and the fourth term
    bound = found["loss"][0] + drift + c / 2 * G**2 * np.cumsum(eta**2)
    return np.cumsum(eta * np.array(found["stationarity"])), bound


def best_bound(found: Trajectory) -> Values:
    """The right-hand side of (52)."""
    return np.asarray(descent_sums(found)[1] / np.cumsum(step_sizes(found)))


def rate_bound(found: Trajectory) -> tuple[float, float]:
    """Eq. (53) under (C1) is A / (t + 1) + B: A, and B, the limit (54)."""
    eta, c, G, gap = found["eta"], lipschitz(found), largest_gradient(found), 1 - found["radius"]
    return found["loss"][0] / eta + c * G * found["apart"][0] / gap, c * G**2 * (2 + gap) / (2 * gap) * eta
