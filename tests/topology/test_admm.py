"""Algorithm 2 step by step: the projection (33)-(35), the shrinkage (37), (S.1)-(S.3), and their limit."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import sdp
from oracles.graphs import random_adjacency
from topology.cases import GRAPHS, price, radius_of

from gossamer.topology.admm import (
    AdmmState,
    EntryPenalty,
    _prox_of_radius,
    initial_state,
    iterate,
    iterate_literally,
    problem_29,
    project,
    spectral_radius,
)

SIZES, SEEDS, RADII = st.integers(2, 9), st.integers(0, 10**6), st.floats(0.0, 1.0)
SCALES = st.sampled_from([1e-3, 1.0, 30.0])


def normal(m: int, seed: int, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).normal(size=(m, m))


def literally_projected(X: np.ndarray, radius: float) -> np.ndarray:
    """Eq. (33)-(35) as they stand in the paper, one eigenvector after the other."""
    m = len(X)
    Pi = np.ones((m, m)) / m
    values, vectors = np.linalg.eigh((np.eye(m) - Pi) @ ((X + X.T) / 2) @ (np.eye(m) - Pi))
    P = Pi.copy()
    for value, v in zip(values, vectors.T, strict=True):
        beta = -radius if value < -radius else radius if value > radius else value
        P += beta * np.outer(v, v)
    return P


def feasible(m: int, radius: float, seed: int) -> np.ndarray:
    """A random C of (29): any eigenvalues within the radius on any basis that has 1 as an axis."""
    random = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(np.column_stack([np.ones(m), random.normal(size=(m, m - 1))]))
    spectrum = radius * random.choice([-1.0, 1.0, random.uniform(-1, 1)], size=m - 1)
    found: np.ndarray = np.ones((m, m)) / m + (Q[:, 1:] * spectrum) @ Q[:, 1:].T
    return found


def soft(x: np.ndarray, threshold: float) -> np.ndarray:
    found: np.ndarray = np.sign(x) * np.maximum(abs(x) - threshold, 0)
    return found


def plain_algorithm(
    A: np.ndarray, radius: float, penalty: float, iterations: int, Z: np.ndarray, U: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """C, Z and U of Algorithm 2 as printed, from Z and U."""
    for _ in range(iterations):
        C = literally_projected(Z - U, radius)
        Z = soft((C + U) * A, 1 / penalty) + (C + U) * (1 - A)
        U = U + C - Z
    return C, Z, U


@given(SIZES, SEEDS, SCALES, RADII)
def test_the_projection_is_the_formula_of_the_paper(m: int, seed: int, scale: float, radius: float) -> None:
    X = normal(m, seed, scale)
    np.testing.assert_allclose(project(X, radius), literally_projected(X, radius), atol=1e-13 * (1 + scale))


@given(SIZES, SEEDS, SCALES, RADII)
def test_the_projection_lands_in_the_set(m: int, seed: int, scale: float, radius: float) -> None:
    C = project(normal(m, seed, scale), radius)
    np.testing.assert_allclose(C, C.T, atol=1e-13 * (1 + scale))
    np.testing.assert_allclose(C.sum(1), np.ones(m), atol=1e-12 * (1 + scale))
    assert radius_of(C) <= radius + 1e-12 * (1 + scale)


@given(SIZES, SEEDS, SCALES, RADII)
def test_projecting_twice_is_projecting_once(m: int, seed: int, scale: float, radius: float) -> None:
    once = project(normal(m, seed, scale), radius)
    np.testing.assert_allclose(project(once, radius), once, atol=1e-13 * (1 + scale))


@given(SIZES, SEEDS, SEEDS, SCALES, RADII)
def test_no_feasible_matrix_is_nearer_than_the_projection(
    m: int, seed: int, other: int, scale: float, radius: float
) -> None:
    X, Y = normal(m, seed, scale), feasible(m, radius, other)
    P = project(X, radius)
    assert np.vdot(X - P, Y - P) <= 1e-11 * (1 + scale) ** 2
    np.testing.assert_allclose(project(Y, radius), Y, atol=1e-13)


@pytest.mark.parametrize("radius", [0.2, 0.7])
def test_the_projection_is_that_of_a_solver(radius: float) -> None:
    X = normal(5, 1)
    np.testing.assert_allclose(project(X, radius), sdp.nearest(X, radius), atol=1e-5)


@pytest.mark.parametrize("weight", [0.1, 1.0, 3.0])
def test_the_step_that_minimises_the_radius_is_that_of_a_solver(weight: float) -> None:
    X = normal(5, 2)
    np.testing.assert_allclose(_prox_of_radius(X, weight), sdp.nearest(X, 0.0, weight), atol=1e-5)


@given(SIZES, SEEDS, SEEDS, st.floats(0.01, 20.0))
def test_no_matrix_does_better_in_the_step_that_minimises_the_radius(
    m: int, seed: int, other: int, weight: float
) -> None:
    X = normal(m, seed)
    C = _prox_of_radius(X, weight)
    cost = weight * radius_of(C) + ((C - X) ** 2).sum() / 2
    for Y in (feasible(m, 0.5, other), C + 1e-3 * (feasible(m, 1.0, other) - C), project(X, 0.9 * radius_of(C))):
        assert weight * radius_of(Y) + ((Y - X) ** 2).sum() / 2 >= cost - 1e-10


def test_a_large_weight_on_the_radius_leaves_complete_averaging() -> None:
    np.testing.assert_allclose(_prox_of_radius(normal(4, 3), 100.0), np.full((4, 4), 0.25), atol=1e-14)


@given(SIZES, SEEDS, st.floats(0.1, 50.0))
def test_the_shrinkage_is_equation_37(m: int, seed: int, penalty: float) -> None:
    A, W = price(random_adjacency(m, 0.4, seed) > 0), normal(m, seed)
    expected = soft(W * A, 1 / penalty) + W * (1 - A)
    np.testing.assert_allclose(problem_29(A).shrink(W, penalty), expected, atol=1e-15)
    np.testing.assert_allclose(problem_29(A, nonnegative=True).shrink(W, penalty), np.maximum(expected, 0), atol=1e-15)


@given(SIZES, SEEDS, st.floats(0.1, 50.0))
def test_the_shrinkage_stays_within_bounds(m: int, seed: int, penalty: float) -> None:
    W, low = normal(m, seed), normal(m, seed + 1)
    high, A = low + abs(normal(m, seed + 2)), price(random_adjacency(m, 0.4, seed) > 0)
    Z = EntryPenalty(A, low, high).shrink(W, penalty)
    for nearby in (Z - 1e-4, Z + 1e-4, low, high):  # Z minimises A|z| + penalty/2 (z - W)^2, entry by entry
        other = np.clip(nearby, low, high)
        assert (
            A * abs(Z) + penalty / 2 * (Z - W) ** 2 <= A * abs(other) + penalty / 2 * (other - W) ** 2 + 1e-12
        ).all()


@given(SIZES, SEEDS, RADII)
def test_an_iteration_is_s1_s2_s3(m: int, seed: int, radius: float) -> None:
    A = price(random_adjacency(m, 0.4, seed) > 0)
    Z, U, penalty = normal(m, seed), normal(m, seed + 1), 1.7
    state = next(iterate(problem_29(A), radius, AdmmState(Z, Z, U, penalty), relaxation=1.0))
    C1 = literally_projected(Z - U, radius)
    Z1 = soft((C1 + U) * A, 1 / penalty) + (C1 + U) * (1 - A)
    np.testing.assert_allclose(state.C, C1, atol=1e-12)
    np.testing.assert_allclose(state.Z, Z1, atol=1e-12)
    np.testing.assert_allclose(state.U, U + C1 - Z1, atol=1e-12)
    assert state.penalty == penalty
    assert state.primal == pytest.approx(
        np.linalg.norm(C1 - Z1) / max(np.linalg.norm(C1), np.linalg.norm(Z1)), abs=1e-9
    )


@settings(max_examples=20)
@given(st.integers(2, 9), SEEDS, RADII, st.floats(0.05, 50.0))
def test_the_literal_algorithm_is_the_printed_one_at_every_iteration(
    m: int, seed: int, radius: float, penalty: float
) -> None:
    A = price(random_adjacency(m, 0.4, seed) > 0)
    Z, U = normal(m, seed), normal(m, seed + 1)  # "chosen at random"
    states = list(islice(iterate_literally(problem_29(A), radius, AdmmState(Z, Z, U, penalty)), 120))
    for iterations in (1, 2, 10, 11, 60, 120):  # the penalty would adapt after 10
        expected = plain_algorithm(A, radius, penalty, iterations, Z, U)
        state = states[iterations - 1]
        for found, wanted in zip((state.C, state.Z, state.U), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-9)
        assert state.penalty == penalty


@given(SIZES, SEEDS, st.floats(0.05, 0.95), st.sampled_from([1.0, 1.6, 1.9]))
def test_the_multiplier_never_exceeds_the_price(m: int, seed: int, radius: float, relaxation: float) -> None:
    A = price(random_adjacency(m, 0.4, seed, connected=False) > 0)
    for state in islice(iterate(problem_29(A), radius, initial_state(m), relaxation), 60):
        np.testing.assert_allclose(state.multiplier, state.multiplier.T, atol=1e-12)
        assert (abs(state.multiplier) <= A + 1e-12).all()


@pytest.mark.parametrize("kind", ["alone", "groups", "sparse", "ring"])
def test_the_residuals_go_to_zero_and_c_meets_z(kind: str) -> None:
    last = list(islice(iterate(problem_29(price(GRAPHS[kind](8))), 0.3, initial_state(8)), 2000))[-1]
    assert max(last.primal, last.dual) < 1e-9
    np.testing.assert_allclose(last.C, last.Z, atol=1e-8)


def test_the_limit_depends_neither_on_relaxation_nor_on_the_penalty() -> None:
    links = GRAPHS["sparse"](7)
    A, radius = price(links), 0.45
    _, plain, _ = plain_algorithm(A, radius, 2.0, 3000, np.zeros_like(A), np.zeros_like(A))
    optimum, best = sdp.sparsest(links, 1 - radius)
    assert (A * abs(plain)).sum() == pytest.approx(optimum, abs=1e-6)
    np.testing.assert_allclose(plain, best, atol=1e-3)  # this problem has one solution
    for relaxation, penalty in [(1.0, 2.0), (1.6, 2.0), (1.9, 0.1), (1.6, 100.0)]:
        begin = AdmmState(np.zeros((7, 7)), np.zeros((7, 7)), np.zeros((7, 7)), penalty)
        last = list(islice(iterate(problem_29(A), radius, begin, relaxation), 3000))[-1]
        np.testing.assert_allclose(last.Z, plain, atol=1e-6)


def test_the_penalty_moves_and_comes_to_rest() -> None:
    begin = AdmmState(np.zeros((7, 7)), np.zeros((7, 7)), np.zeros((7, 7)), penalty=1e3)
    penalties = [s.penalty for s in islice(iterate(problem_29(price(GRAPHS["sparse"](7))), 0.45, begin), 1500)]
    assert penalties[0] == 1e3
    assert penalties[-1] < 1e2
    assert len(set(penalties[-300:])) == 1


@given(SIZES, SEEDS, RADII)
def test_the_spectral_radius_is_the_largest_eigenvalue_without_the_mean(m: int, seed: int, radius: float) -> None:
    C = feasible(m, radius, seed)
    assert spectral_radius(C) == pytest.approx(radius_of(C), abs=1e-12)
