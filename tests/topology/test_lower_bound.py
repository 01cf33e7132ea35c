"""The bound that a multiplier proves: below the optimum for every symmetric matrix, and equal to it at the end."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import sdp
from oracles.graphs import random_adjacency
from topology.cases import GRAPHS, price

from gossamer.topology.admm import AdmmState, EntryPenalty, initial_state, iterate, lower_bound, problem_29

SEEDS = st.integers(0, 10**6)
M, FLOOR = 6, 0.09


def signed_floors(links: np.ndarray) -> np.ndarray:
    return np.where(links, FLOOR, 0.0) * np.where(np.add.outer(np.arange(M), np.arange(M)) == 3, -1, 1)


PROBLEMS = {"plain": (False, False), "nonnegative": (True, False), "floors": (False, True)}
CASES = [(kind, problem, gap) for kind in ("line", "groups", "sparse") for problem in PROBLEMS for gap in (0.3, 0.6)]


def entries(links: np.ndarray, nonnegative: bool, floored: bool) -> EntryPenalty:
    plain = problem_29(price(links), nonnegative)
    if not floored:
        return plain
    floors = signed_floors(links)
    return EntryPenalty(
        plain.penalised, np.where(floors > 0, floors, plain.low), np.where(floors < 0, floors, plain.high)
    )


Solved = dict[tuple[str, str, float], tuple[float, AdmmState]]


@pytest.fixture(scope="module")
def solved() -> Solved:
    """The optimum by the solver, and the last iterate of Algorithm 2."""
    found = {}
    for kind, problem, gap in CASES:
        links, (nonnegative, floored) = GRAPHS[kind](M), PROBLEMS[problem]
        optimum = sdp.sparsest(links, gap, nonnegative, signed_floors(links) if floored else None)[0]
        steps = iterate(entries(links, nonnegative, floored), 1 - gap, initial_state(M))
        found[kind, problem, gap] = optimum, list(islice(steps, 1500))[-1]
    return found


@settings(max_examples=300)
@given(st.sampled_from(CASES), SEEDS, st.sampled_from([0.01, 0.1, 0.5, 1.0, 5.0, 100.0]), st.booleans())
def test_any_symmetric_matrix_proves_a_bound_below_the_optimum(
    solved: Solved, case: tuple[str, str, float], seed: int, scale: float, near: bool
) -> None:
    (kind, problem, gap), (optimum, limit) = case, solved[case]
    X = scale * np.random.default_rng(seed).normal(size=(M, M)) + (limit.multiplier / 2 if near else 0.0)
    bound, _ = lower_bound(entries(GRAPHS[kind](M), *PROBLEMS[problem]), X + X.T, 1 - gap)
    assert bound <= optimum + 1e-6


@pytest.mark.parametrize("case", CASES)
def test_the_multiplier_of_the_limit_proves_the_optimum(solved: Solved, case: tuple[str, str, float]) -> None:
    (kind, problem, gap), (optimum, limit) = case, solved[case]
    asked = entries(GRAPHS[kind](M), *PROBLEMS[problem])
    assert optimum > 0.01
    assert lower_bound(asked, limit.multiplier, 1 - gap)[0] == pytest.approx(optimum, rel=1e-5, abs=1e-6)
    assert asked.objective(limit.Z) == pytest.approx(optimum, rel=1e-5, abs=1e-6)


@given(st.integers(2, 9), SEEDS, st.floats(0.0, 1.0))
def test_within_the_price_the_bound_is_the_closed_formula(m: int, seed: int, radius: float) -> None:
    A = price(random_adjacency(m, 0.4, seed) > 0)
    X = np.random.default_rng(seed).uniform(-1, 1, (m, m))
    M = A * (X + X.T) / 2
    Pi = np.ones((m, m)) / m
    nuclear = np.linalg.norm((np.eye(m) - Pi) @ M @ (np.eye(m) - Pi), "nuc")
    bound, slope = lower_bound(problem_29(A), M, radius)
    assert bound == pytest.approx(np.vdot(M, Pi) - radius * nuclear, abs=1e-12)
    assert slope == pytest.approx(nuclear, abs=1e-12)


@given(st.integers(2, 9), SEEDS)
def test_beyond_the_price_a_free_entry_is_clipped(m: int, seed: int) -> None:
    A = price(random_adjacency(m, 0.4, seed) > 0)
    X = 3 * np.random.default_rng(seed).normal(size=(m, m))
    M = X + X.T
    assert lower_bound(problem_29(A), M, 0.4) == lower_bound(problem_29(A), np.minimum(np.maximum(M, -A), A), 0.4)
    one_sided = problem_29(A, nonnegative=True)  # a negative M is no matter where z >= 0
    np.testing.assert_array_equal(one_sided.feasible_dual(M), np.minimum(M, A))


@given(SEEDS)
def test_the_least_of_the_entries_is_found_by_trying(seed: int) -> None:
    random = np.random.default_rng(seed)
    low = random.normal(size=(4, 4))
    high, A = low + random.uniform(0, 2, (4, 4)), (random.random((4, 4)) < 0.5).astype(float)
    M = 2 * random.normal(size=(4, 4))
    tried = np.stack([low, high, np.clip(0.0, low, high), *(low + s * (high - low) for s in (0.25, 0.5, 0.75))])
    least = (A * abs(tried) - M * tried).min(0).sum()
    assert EntryPenalty(A, low, high).least(M) == pytest.approx(least, abs=1e-12)


@given(SEEDS)
def test_the_objective_sums_what_lies_on_unneeded_links(seed: int) -> None:
    links = random_adjacency(5, 0.4, seed) > 0
    Z = np.random.default_rng(seed).normal(size=(5, 5))
    expected = sum(abs(Z[k, z]) for k in range(5) for z in range(5) if k != z and not links[k, z])
    assert problem_29(price(links)).objective(Z) == pytest.approx(expected)
