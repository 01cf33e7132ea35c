"""The designed topology (Sec. IV): problem (29) solved by Algorithm 2, then one matrix C that can be deployed.

Algorithm 2 ends with a C that is feasible but only nearly sparse and a Z that is sparse but only nearly feasible. So
the support is taken from Z, and (29) is solved again on that support, with every needed |C_kz| at least a floor and
with a radius smaller by a margin, until Z itself is feasible. Every objective has a proved lower bound (weak duality).
"""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController

from gossamer.errors import GossamerError, GossamerWarning
from gossamer.topology.admm import (
    AdmmState,
    EntryPenalty,
    initial_state,
    iterate,
    lower_bound,
    problem_29,
    spectral_radius,
)
from gossamer.topology.checks import check_gap, check_shared_edges
from gossamer.topology.families import Links, Matrix, needed_links
from gossamer.topology.fastest import (
    CHECK_EVERY,
    SPECTRAL_ROUNDING,
    Progress,
    check_lower_bound,
    fastest_mixing,
    make_deployable,
)
from gossamer.topology.weights import metropolis_weights

DESIGN_TOLERANCE = 1e-4  # relative optimality gap at which a design stops by default
ABSOLUTE_TOLERANCE = 1e-6  # optimality gap that counts as none, whatever the objective
NEGLIGIBLE = 1e-3  # entries of Z below this fraction of the largest are not links
TRIAL, SPEED_UP = 200, 2000  # iterations to find out whether the needed links are enough, and on their weights if so
MAX_ON_ONE_THREAD = 512  # agents up to which BLAS gets one thread
MARGIN_PATIENCE = 250  # iterations without a feasible matrix after which the margin doubles and the cheapest links join
SPARE = 1.0 + 1e-9  # factor on the floors, so that rounding does not fall below them


@dataclass(frozen=True)
class Design:
    """A deployable C with its objective and the lower bound on it."""

    combination: Matrix  # C [m, m]
    needed_links: Links  # where agents share data edges
    gap: float  # gamma: the spectral radius of C - 11^T/m is at most 1 - gap
    nonnegative: bool
    floor: float  # the least |C_kz| on a needed link
    floor_cost: float  # at most this much of the objective is due to the floor
    objective: float  # ||C o A||_1
    lower_bound: float  # proved: no C of problem (29) has a smaller objective
    iterations: int
    warm_start: AdmmState | None = None  # for a similar gap


@dataclass(frozen=True)
class _Problem:
    links: Links
    entries: EntryPenalty  # of problem (29)
    gap: float
    nonnegative: bool
    floor: float
    tolerance: float
    max_iterations: int
    progress: Progress

    @property
    def radius(self) -> float:
        return 1.0 - self.gap

    def floors(self, Z: Matrix) -> Matrix:
        """Signed floor of each needed link [m, m]: the sign of the link in Z, positive where Z is about 0."""
        floor = SPARE * self.floor
        return np.where(self.links, np.where(-floor > Z, -floor, floor), 0.0)

    def meets_floors(self, C: Matrix) -> bool:
        return bool((abs(C[self.links]) >= self.floor).all())

    def accepts(self, C: Matrix) -> bool:
        """True if a C that is deployable otherwise reaches the gap (to rounding) and its floors."""
        return self.meets_floors(C) and spectral_radius(C) <= self.radius + SPECTRAL_ROUNDING

    def slack(self, objective: float) -> float:
        return max(self.tolerance * objective, ABSOLUTE_TOLERANCE)


def design(
    shared_edges: ArrayLike,
    gap: float = 0.5,
    *,
    nonnegative: bool = False,
    floor: float | None = None,
    tolerance: float = DESIGN_TOLERANCE,
    max_iterations: int = 5000,
    warm_start: AdmmState | None = None,
    progress: Progress | None = None,
) -> Design:
    """Design the sparsest C in the sense of (29) for B [m, m], the numbers of data edges that agents share.

    The objective is within `tolerance` of the optimum with the floor, relative (or 1e-6, absolute); otherwise a warning
    is issued. The floor is 1e-3/m by default. Where the needed links alone reach the gap, C has their fastest weights.
    """
    links = needed_links(check_shared_edges(shared_edges))
    m = len(links)
    check_gap(gap, floor, m, tolerance)
    if warm_start is not None and warm_start.Z.shape != (m, m):
        raise GossamerError(f"the warm start is for {len(warm_start.Z)} agents, and B for {m}")
    A = np.where(links | np.eye(m, dtype=bool), 0.0, 1.0)
    problem = _Problem(
        links,
        problem_29(A, nonnegative),
        gap,
        nonnegative,
        1e-3 / m if floor is None else floor,
        tolerance,
        max_iterations,
        progress or (lambda iteration, reached: None),
    )
    if problem.radius == 0.0:  # complete averaging is all that is feasible, and M = A proves it optimal
        return _make_design(problem, np.full((m, m), 1.0 / m), float(A.sum()) / m, 0)
    # A second thread makes small eigendecompositions hardly faster, and on a busy machine many times slower.
    with _blas().limit(limits=1 if m <= MAX_ON_ONE_THREAD else None, user_api="blas"):
        return _solve(problem, warm_start or initial_state(m))


@cache
def _blas() -> Any:
    """Controller of the loaded BLAS libraries, cached: finding them takes as long as a small design."""
    return ThreadpoolController()


def _solve(problem: _Problem, begin: AdmmState) -> Design:
    """Run Algorithm 2 on problem (29) until both residuals and the optimality gap of a feasible Z are small."""
    entries, radius = problem.entries, problem.radius
    bound, slope, iterations, ask_again = -np.inf, 0.0, 0, 10 * CHECK_EVERY
    for iterations, state in enumerate(iterate(entries, radius, begin), 1):
        if iterations % CHECK_EVERY:
            continue
        proved, nuclear = lower_bound(entries, state.multiplier, radius)
        if proved > bound:
            bound, slope = proved, nuclear
        value = entries.objective(state.Z)
        too_slow = max(0.0, spectral_radius(make_deployable(state.Z, problem.nonnegative)) - radius)
        problem.progress(iterations, f"objective {value:.5g}, at least {bound:.5g}")
        small_gap = value + slope * too_slow - bound <= problem.slack(value) / 2
        small_residuals = max(state.primal, state.dual) <= problem.tolerance
        done = (small_gap and small_residuals) or iterations >= problem.max_iterations
        # While nothing proves that links must be added, the needed ones may be enough.
        enough = value == 0.0 and too_slow == 0.0
        if enough or (bound <= ABSOLUTE_TOLERANCE and (done or iterations == ask_again)):
            effort = SPEED_UP if enough or done else TRIAL
            made = _solve_on_needed_links(problem, make_deployable(state.Z, problem.nonnegative), effort, iterations)
            if made is not None:
                return made
            ask_again *= 2
        if done or enough:
            break
    # A smaller radius costs the slope times the margin: at most a quarter of the tolerance.
    margin = min(problem.slack(max(bound, 0.0)) / 4 / max(slope, 1e-300), problem.tolerance * radius)
    return _solve_on_support(problem, state, max(bound, 0.0), margin, iterations)


def _solve_on_support(problem: _Problem, found: AdmmState, bound: float, margin: float, iterations: int) -> Design:
    """Solve (29) again on the support of Z, with floors and a margin, until a deployable Z is proved good enough."""
    entries, radius, state = problem.entries, problem.radius, found
    A, floors = entries.penalised, problem.floors(found.Z)
    low, high = np.where(floors > 0, floors, entries.low), np.where(floors < 0, floors, entries.high)
    floored = EntryPenalty(A, low, high)
    absent = (A > 0) & (abs(found.Z) <= NEGLIGIBLE * (A * abs(found.Z)).max())
    best, least, floored_bound, last = None, np.inf, bound, iterations + problem.max_iterations
    done = False
    while not done:
        restricted = EntryPenalty(A, np.where(absent, 0.0, low), np.where(absent, 0.0, high))
        for attempt, after in enumerate(iterate(restricted, radius - margin, state), 1):
            state, iterations = after, iterations + 1
            if attempt % CHECK_EVERY:
                continue
            C = make_deployable(state.Z, problem.nonnegative, floors)
            value = entries.objective(C)
            if value < least and problem.accepts(C):
                best, least = C, value
            proved, slope = lower_bound(floored, state.multiplier, radius)
            floored_bound = max(floored_bound, proved)
            if not state.U[problem.links].any():  # no floor binds, so that the bound is one for (29), too
                bound = max(bound, proved)
            problem.progress(iterations, f"objective {min(value, least):.5g}, at least {floored_bound:.5g}")
            done = (best is not None and least - floored_bound <= problem.slack(least)) or iterations >= last
            if done:
                break
            # Dual price of an absent link, whose cost is 1: above 1, adding the link lowers the objective.
            price = np.where(absent, abs(state.multiplier), 0.0)
            restricted_bound = lower_bound(restricted, state.multiplier, radius)[0]
            if restricted_bound > floored_bound + problem.slack(floored_bound) / 2 and price.max() > 1.0:
                absent &= price <= 1.0  # the support is proved too small: add every link that pays
                state = found  # the multiplier has diverged in this proof
                break
            spent = margin * slope / problem.slack(floored_bound)  # fraction of the tolerance that the margin costs
            if best is not None and spent > 0.5:
                margin /= 4 * spent
                break
            if attempt >= MARGIN_PATIENCE and best is None:
                margin = min(2 * margin, radius / 10)
                number = 2 + 2 * int(((A > 0) & ~absent).sum())
                absent &= price < np.sort(price, axis=None)[-min(number, price.size)]
                state = found
                break
    if best is None:
        best = _average(problem)
        least = entries.objective(best)
    if least - floored_bound > problem.slack(least):
        best = _improve(problem, best)
        least = entries.objective(best)
    if least - floored_bound > problem.slack(least):
        warnings.warn(
            f"the design stopped after {iterations} iterations with an objective of {least:.6g}, proved to be at least "
            f"{floored_bound:.6g}; allow more iterations or a larger tolerance than {problem.tolerance:g}",
            GossamerWarning,
            stacklevel=2,
        )
    if least == 0.0:
        made = _solve_on_needed_links(problem, best, SPEED_UP, iterations)
        assert made is not None  # `best` is accepted at least
        return made
    bound = max(bound, lower_bound(entries, state.multiplier, radius)[0])
    return _make_design(problem, best, bound, iterations, found)


def _solve_on_needed_links(problem: _Problem, known: Matrix, effort: int, iterations: int) -> Design | None:
    """Solve (29) with objective 0, if the fastest or the known weights on the needed links reach the gap."""
    candidates, floors = [known], None
    for _ in range(2):
        found = fastest_mixing(
            problem.links,
            problem.nonnegative,
            floors,
            max_iterations=effort,
            target=problem.radius + SPECTRAL_ROUNDING,
            progress=problem.progress,
        )
        iterations += found.iterations
        candidates.insert(0, found.combination)
        if found.spectral_radius > problem.radius + SPECTRAL_ROUNDING or problem.meets_floors(found.combination):
            break
        floors = problem.floors(found.combination)
    for C in candidates:
        if problem.entries.objective(C) == 0.0 and problem.accepts(C):
            return _make_design(problem, C, 0.0, iterations)
    return None


def _improve(problem: _Problem, best: Matrix) -> Matrix:
    """Mix the fastest weights on the needed links with as little of `best` as reaches the gap, if that is better.

    The spectral radius is convex: C = (1 - t) F + t best has at most (1 - t) rho(F) + t rho(best).
    """
    found = fastest_mixing(problem.links, problem.nonnegative, problem.floors(best), 1e-7, SPEED_UP)
    fastest, reached = found.spectral_radius, spectral_radius(best)
    t = (fastest - problem.radius) / (fastest - reached) if fastest > problem.radius > reached else 1.0
    C = make_deployable((1 - t) * found.combination + t * best, False)
    return C if problem.accepts(C) and problem.entries.objective(C) < problem.entries.objective(best) else best


def _average(problem: _Problem) -> Matrix:
    """Mix Metropolis-Hastings weights with complete averaging to reach the gap: the fallback without iterations."""
    C = metropolis_weights(problem.links)
    share = min(1.0, problem.radius / max(spectral_radius(C), 1e-300))
    return share * C + (1 - share) / len(C)


def _make_design(
    problem: _Problem, C: Matrix, bound: float, iterations: int, warm_start: AdmmState | None = None
) -> Design:
    objective = problem.entries.objective(C)
    proved = check_lower_bound(bound, objective)
    at_floor = abs(C[problem.links]).min(initial=np.inf) <= SPARE * problem.floor
    return Design(
        combination=C,
        needed_links=problem.links,
        gap=problem.gap,
        nonnegative=problem.nonnegative,
        floor=problem.floor,
        floor_cost=objective - proved if at_floor else 0.0,
        objective=objective,
        lower_bound=proved,
        iterations=iterations,
        warm_start=warm_start,
    )
