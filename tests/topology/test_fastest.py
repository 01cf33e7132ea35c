"""The fastest mixing weights against a semidefinite solver and against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import sdp
from oracles.graphs import cycles, random_adjacency
from topology.cases import GRAPHS, by_pairs, hub, off_diagonal, path, radius_of

from gossamer.topology import fastest_mixing, fastest_weights, metropolis_weights

SIGNS = pytest.mark.parametrize("nonnegative", [False, True])
LADDER = by_pairs(8, (0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7), (0, 4), (1, 5), (2, 6), (3, 7))
GRAPHS_OF_EIGHT = {
    "line": path(8),
    "ring": cycles(8) > 0,
    "star": hub(8),
    "grid": LADDER,
    "thin": random_adjacency(8, 0.1, 3) > 0,
    "thick": random_adjacency(8, 0.5, 4) > 0,
}


def assert_on_links(C: np.ndarray, links: np.ndarray) -> None:
    np.testing.assert_array_equal(C, C.T)
    np.testing.assert_allclose(C.sum(1), np.ones(len(C)), atol=1e-14 * len(C))
    np.testing.assert_array_equal(C[off_diagonal(len(C)) & ~links], 0.0)


@SIGNS
@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
@pytest.mark.parametrize("kind", GRAPHS_OF_EIGHT)
def test_the_least_radius_is_that_of_the_solver(kind: str, tolerance: float, nonnegative: bool) -> None:
    links = GRAPHS_OF_EIGHT[kind]
    found = fastest_mixing(links, nonnegative, tolerance=tolerance, max_iterations=3000)
    optimum = sdp.fastest(links, nonnegative)[0]
    assert found.spectral_radius == pytest.approx(radius_of(found.combination), abs=1e-12)
    assert found.lower_bound - 1e-6 <= optimum <= found.spectral_radius + 1e-6
    assert found.spectral_radius - found.lower_bound <= tolerance * (1 - found.spectral_radius)
    assert_on_links(found.combination, links)
    if nonnegative:
        assert found.combination.min() >= 0


@SIGNS
def test_two_solvers_agree_on_the_least_radius(nonnegative: bool) -> None:
    links = random_adjacency(7, 0.3, 5) > 0
    one, other = (sdp.fastest(links, nonnegative, solver)[0] for solver in sdp.TIGHT)
    assert one == pytest.approx(other, abs=1e-6)


def laplacian_radius(links: np.ndarray) -> float:
    """If all links are equivalent, the best weight is 2/(lambda_2 + lambda_m) of the Laplacian, for every link."""
    values = np.linalg.eigvalsh(np.diag(links.sum(1)) - links.astype(float))
    return float((values[-1] - values[1]) / (values[-1] + values[1]))


CUBE = by_pairs(8, *((k, k ^ bit) for k in range(8) for bit in (1, 2, 4)))


@pytest.mark.parametrize(
    ("links", "expected"),
    [(path(m), np.cos(np.pi / m)) for m in (2, 3, 4, 7, 10)]
    + [(hub(m), (m - 1) / (m + 1)) for m in (3, 5, 9)]
    + [(off_diagonal(m), 0.0) for m in (2, 5, 9)]
    + [(cycles(m) > 0, laplacian_radius(cycles(m) > 0)) for m in (4, 5, 9)]
    + [(CUBE, 0.5)],
)
def test_closed_forms_of_the_least_radius(links: np.ndarray, expected: float) -> None:
    found = fastest_mixing(links, tolerance=1e-4, max_iterations=5000)
    assert found.spectral_radius == pytest.approx(expected, abs=1e-4)
    assert found.lower_bound <= expected + 1e-12


@pytest.mark.parametrize("m", [4, 6, 9])
def test_a_star_without_negative_weights_leaves_its_hub_nothing(m: int) -> None:
    found = fastest_mixing(hub(m), nonnegative=True, tolerance=1e-4)
    assert found.spectral_radius == pytest.approx(1 - 1 / (m - 1), abs=1e-4)
    assert found.combination[0, 0] == pytest.approx(0.0, abs=1e-3)
    np.testing.assert_allclose(found.combination[0, 1:], 1 / (m - 1), atol=1e-3)


@settings(max_examples=60)
@given(st.integers(2, 12), st.sampled_from([0.0, 0.2, 0.6]), st.integers(0, 10**6), st.booleans())
def test_fastest_weights_are_proved_and_no_slower_than_metropolis(
    m: int, density: float, seed: int, nonnegative: bool
) -> None:
    links = random_adjacency(m, density, seed) > 0
    found = fastest_mixing(links, nonnegative)
    assert_on_links(found.combination, links)
    assert found.lower_bound <= found.spectral_radius < 1
    assert found.spectral_radius - found.lower_bound <= 1e-2 * (1 - found.spectral_radius)
    assert found.spectral_radius <= radius_of(metropolis_weights(links)) + 1e-12


def test_fastest_alone_is_the_matrix_with_signs_allowed() -> None:
    links = random_adjacency(9, 0.3, 7) > 0
    np.testing.assert_array_equal(fastest_weights(links), fastest_mixing(links).combination)


@SIGNS
def test_floors_are_kept_with_their_signs(nonnegative: bool) -> None:
    links = random_adjacency(7, 0.4, 2) > 0
    floors = np.where(links, 0.15, 0.0)
    if not nonnegative:
        k, z = np.argwhere(links)[0]
        floors[k, z] = floors[z, k] = -0.15
    found = fastest_mixing(links, nonnegative, floors)
    C = found.combination
    assert (C[floors > 0] >= 0.15 - 1e-3).all()
    assert (C[floors < 0] <= -0.15).all()
    free = fastest_mixing(links, nonnegative)
    assert found.spectral_radius > free.spectral_radius + 0.01


@SIGNS
@pytest.mark.parametrize("kind", GRAPHS_OF_EIGHT)
def test_a_target_is_decided(kind: str, nonnegative: bool) -> None:
    links = GRAPHS_OF_EIGHT[kind]
    optimum = sdp.fastest(links, nonnegative)[0]
    reachable, out_of_reach = optimum + 1e-3 * (1 - optimum), optimum - 1e-3 * (1 - optimum)
    assert fastest_mixing(links, nonnegative, target=reachable, max_iterations=3000).spectral_radius <= reachable
    gives_up = fastest_mixing(links, nonnegative, target=out_of_reach, max_iterations=3000)
    assert out_of_reach < gives_up.lower_bound <= optimum + 1e-6
    assert fastest_mixing(links, nonnegative, target=0.5 * optimum).iterations <= gives_up.iterations


@pytest.mark.parametrize("m", [20, 60])
def test_a_search_cut_short_still_mixes_no_slower_than_metropolis(m: int) -> None:
    found = fastest_mixing(path(m), max_iterations=10)
    assert found.iterations == 10
    assert found.lower_bound <= np.cos(np.pi / m) + 1e-12
    assert radius_of(found.combination) <= radius_of(metropolis_weights(path(m))) + 1e-12


@SIGNS
@pytest.mark.parametrize("links", [GRAPHS["alone"](4), GRAPHS["groups"](7), by_pairs(5, (0, 1), (1, 2))])
def test_disconnected_links_cannot_mix(links: np.ndarray, nonnegative: bool) -> None:
    found = fastest_mixing(links, nonnegative)
    assert found.spectral_radius == pytest.approx(1.0)
    assert found.lower_bound == pytest.approx(1.0)
    np.testing.assert_array_equal(found.combination, metropolis_weights(links))
    assert sdp.fastest(links, nonnegative)[0] == pytest.approx(1.0, abs=1e-6)


def test_a_single_agent_keeps_its_weights() -> None:
    np.testing.assert_array_equal(fastest_weights(np.zeros((1, 1), dtype=bool)), [[1.0]])


def test_progress_tells_the_radius_and_its_bound() -> None:
    told: list[tuple[int, str]] = []
    found = fastest_mixing(path(9), progress=lambda iteration, reached: told.append((iteration, reached)))
    assert told[-1] == (
        found.iterations,
        f"spectral radius {found.spectral_radius:.4f}, at least {found.lower_bound:.4f}",
    )
