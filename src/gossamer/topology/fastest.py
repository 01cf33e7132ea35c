"""Fastest mixing weights on a given agent graph: the C with the least spectral radius, and a proved bound on it.

The problem is that of Xiao and Boyd 2004, Fast linear iterations for distributed averaging; with nonnegative weights
that of Boyd, Diaconis and Xiao 2004, Fastest mixing Markov chain on a graph. It is solved by the ADMM of Algorithm 2.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gossamer.errors import GossamerError
from gossamer.topology.admm import EntryPenalty, initial_state, iterate, lower_bound, spectral_radius
from gossamer.topology.families import Links, Matrix, count_components
from gossamer.topology.weights import complete_diagonal, metropolis_weights

Progress = Callable[[int, str], None]  # called with the iterations so far and a description of the result so far
SPECTRAL_ROUNDING = 1e-14  # rounding error of sums and spectral radii
BOUND_ROUNDING = 1e-9  # excess of a bound over the value reached that m^2 roundings explain; relative above 1
CHECK_EVERY = 10  # iterations between two checks of the candidate; a check costs about as much as an iteration


@dataclass(frozen=True)
class FastestMixing:
    """Weights on given links, their spectral radius and a bound on that of any weights."""

    combination: Matrix
    spectral_radius: float
    lower_bound: float  # proved: no weights on these links have a smaller spectral radius
    iterations: int


def fastest_weights(links: Links, nonnegative: bool = False) -> Matrix:
    """Minimise rho(C - 11^T/m) over the C on these links, to 1 % of 1 - rho or for 1000 iterations."""
    return fastest_mixing(links, nonnegative).combination


def fastest_mixing(
    links: Links,
    nonnegative: bool = False,
    floors: Matrix | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 1000,
    target: float | None = None,
    progress: Progress | None = None,
) -> FastestMixing:
    """Minimise rho(C - 11^T/m) over the C on these links.

    - `nonnegative`: require C >= 0
    - `floors`: signed least weight of each link [m, m], 0 for none
    - `target`: spectral radius of interest: stop only when it is reached or proved out of reach
    """
    m = len(links)
    best = metropolis_weights(links)
    if count_components(links) > 1 or m == 1:
        return FastestMixing(best, spectral_radius(best), spectral_radius(best), 0)
    least = np.zeros((m, m)) if floors is None else floors
    support = links | np.eye(m, dtype=bool)
    low = np.where(least > 0, least, np.where(support & (least <= 0) & (not nonnegative), -np.inf, 0.0))
    high = np.where(least < 0, least, np.where(support, np.inf, 0.0))
    entries = EntryPenalty(np.zeros((m, m)), low, high)
    smallest, bound = spectral_radius(best), 0.0
    if ((best < low) | (best > high)).any():
        smallest = np.inf
    for iteration, state in enumerate(iterate(entries, None, initial_state(m)), 1):
        if iteration % CHECK_EVERY:
            continue
        C = make_deployable(state.Z, nonnegative, least)
        radius = spectral_radius(C)
        if radius < smallest:
            best, smallest = C, radius
        value, nuclear = lower_bound(entries, state.multiplier, 0.0)
        # The objective is 0, so that value <= rho nuclear for the spectral radius rho of every C.
        bound = max(bound, value / nuclear if nuclear > 0 else 0.0)
        if progress is not None:
            progress(iteration, f"spectral radius {smallest:.4f}, at least {bound:.4f}")
        finished = smallest - bound <= tolerance * (1 - smallest)
        if target is not None:
            finished = bound > target or (finished and smallest <= target)
        if finished or iteration >= max_iterations:
            break
    return FastestMixing(best, smallest, check_lower_bound(bound, smallest), iteration)


def check_lower_bound(bound: float, reached: float) -> float:
    """Return a lower bound that is at most the value reached; refuse one that rounding does not explain."""
    if bound > reached + BOUND_ROUNDING * max(1.0, abs(reached)):
        raise GossamerError(
            f"a matrix reaches {reached:.12g} and the proved lower bound is {bound:.12g}: one of them is wrong; please "
            "report this with the agents' links and the gap"
        )
    return min(bound, reached)


def make_deployable(Z: Matrix, nonnegative: bool, floors: Matrix | float = 0.0) -> Matrix:
    """Make C from the off-diagonal entries of Z: exactly symmetric, its diagonal such that row sums are 1.

    If no weight may be negative, the weights above their floors [m, m] shrink until no diagonal entry is.
    """
    C = (Z + Z.T) / 2
    np.fill_diagonal(C, 0.0)
    full = C.sum(1) > 1.0 - SPECTRAL_ROUNDING
    if nonnegative and full.any():
        least = np.broadcast_to(floors, C.shape)
        room, above = 1.0 - SPECTRAL_ROUNDING - least[full].sum(1), (C - least)[full].sum(1)
        C = least + (C - least) * (room / above).min()
    completed = complete_diagonal(C)
    if np.diag(completed).all():
        return completed
    return complete_diagonal((1.0 - SPECTRAL_ROUNDING) * C)  # C_kk must not be 0 (28)
