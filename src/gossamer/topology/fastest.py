"""The fastest mixing weights on a given agent graph: the C with the least spectral radius, and a proved bound on it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gossamer.errors import GossamerError
from gossamer.topology.admm import Entries, iterate, lower_bound, spectral_radius, start
from gossamer.topology.families import Links, Matrix, components
from gossamer.topology.weights import metropolis, with_diagonal

Progress = Callable[[int, str], None]  # of the iterations so far and what they reached
ROUNDING = 1e-14  # what sums and spectral radii may be off by
PROOF = 1e-9  # what a bound may lie above what was reached, relative where that is above 1: sums of m^2 roundings
CHECK_EVERY = 10  # iterations between two looks at the candidate; a look costs about as much as an iteration


@dataclass(frozen=True)
class Fastest:
    combination: Matrix
    spectral_radius: float
    lower_bound: float  # proved: no weights on these links have a smaller spectral radius
    iterations: int


def fastest(links: Links, nonnegative: bool = False) -> Matrix:
    """Minimise rho(C - 11^T/m) over the C on these links, to 1 % of 1 - rho or as far as 1000 iterations lead."""
    return fastest_mixing(links, nonnegative).combination


def fastest_mixing(
    links: Links,
    nonnegative: bool = False,
    floors: Matrix | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 1000,
    target: float | None = None,
    progress: Progress | None = None,
) -> Fastest:
    """The same with more to say: C >= 0; a least weight with its sign for each link (floors [m, m], 0 for none); and a
    target, which ends the search when it is proved out of reach, and not before it is known whether it is.
    """
    m = len(links)
    best = metropolis(links)
    if components(links) > 1 or m == 1:
        return Fastest(best, spectral_radius(best), spectral_radius(best), 0)
    least = np.zeros((m, m)) if floors is None else floors
    support = links | np.eye(m, dtype=bool)
    low = np.where(least > 0, least, np.where(support & (least <= 0) & (not nonnegative), -np.inf, 0.0))
    high = np.where(least < 0, least, np.where(support, np.inf, 0.0))
    entries = Entries(np.zeros((m, m)), low, high)
    smallest, bound = spectral_radius(best), 0.0
    if ((best < low) | (best > high)).any():
        smallest = np.inf
    for iteration, state in enumerate(iterate(entries, None, start(m)), 1):
        if iteration % CHECK_EVERY:
            continue
        C = deployable(state.Z, nonnegative, least)
        radius = spectral_radius(C)
        if radius < smallest:
            best, smallest = C, radius
        value, nuclear = lower_bound(entries, state.multiplier, 0.0)
        bound = max(bound, value / nuclear if nuclear > 0 else 0.0)  # value <= 0 + radius * nuclear for every C
        if progress is not None:
            progress(iteration, f"spectral radius {smallest:.4f}, at least {bound:.4f}")
        close = smallest - bound <= tolerance * (1 - smallest)
        if target is not None:
            close = bound > target or (close and smallest <= target)
        if close or iteration >= max_iterations:
            break
    return Fastest(best, smallest, proved_below(bound, smallest), iteration)


def proved_below(bound: float, reached: float) -> float:
    """Lower bound of what was reached, equal to it where rounding puts it above; one that lies higher is wrong."""
    if bound > reached + PROOF * max(1.0, abs(reached)):
        raise GossamerError(
            f"a matrix reaches {reached:.12g} and the proved lower bound is {bound:.12g}: one of them is wrong; please "
            "report this with the agents' links and the gap"
        )
    return min(bound, reached)


def deployable(Z: Matrix, nonnegative: bool, floors: Matrix | float = 0.0) -> Matrix:
    """C with the off-diagonal entries of Z: exactly symmetric, and by its diagonal with row sums 1.

    Where no weight may be negative, what all weights have above their floors [m, m] shrinks until every row has room.
    """
    C = (Z + Z.T) / 2
    np.fill_diagonal(C, 0.0)
    full = C.sum(1) > 1.0 - ROUNDING
    if nonnegative and full.any():
        least = np.broadcast_to(floors, C.shape)
        room, above = 1.0 - ROUNDING - least[full].sum(1), (C - least)[full].sum(1)
        C = least + (C - least) * (room / above).min()
    made = with_diagonal(C)
    return made if np.diag(made).all() else with_diagonal((1.0 - ROUNDING) * C)  # (28): C_kk != 0
