"""Designed topologies against a semidefinite solver: the optimum of (29), its proved bound, and fastest weights."""

import numpy as np
import pytest
from oracles import sdp
from topology.cases import GRAPHS, assert_deployable, by_pairs, off_diagonal, radius_of

from gossamer.topology import Design, design

GAPS = [0.05, 0.3, 0.5, 0.8, 0.95]
SIGNS = pytest.mark.parametrize("nonnegative", [False, True])
KINDS = pytest.mark.parametrize("kind", GRAPHS)


def assert_optimal(made: Design, optimum: float) -> None:
    assert abs(made.objective - optimum) <= 1e-4 * optimum + 1e-6
    assert made.lower_bound <= optimum + 1e-7
    assert made.lower_bound >= optimum - max(1e-3 * optimum, 2e-6)


@SIGNS
@pytest.mark.parametrize("gap", GAPS)
@KINDS
@pytest.mark.parametrize("m", [2, 3, 5, 8, 11])
def test_designs_are_optimal_and_deployable(m: int, kind: str, gap: float, nonnegative: bool) -> None:
    links = GRAPHS[kind](m)
    made = design(links.astype(int), gap, nonnegative=nonnegative)
    assert_optimal(made, sdp.sparsest(links, gap, nonnegative)[0])
    assert_deployable(made, links, gap)
    assert made.nonnegative == nonnegative


@SIGNS
@pytest.mark.parametrize(("m", "gap"), [(16, 0.3), (20, 0.5), (30, 0.8), (30, 0.95)])
@KINDS
def test_larger_designs_are_optimal_and_deployable(m: int, kind: str, gap: float, nonnegative: bool) -> None:
    links = GRAPHS[kind](m)
    made = design(links.astype(int), gap, nonnegative=nonnegative)
    assert_optimal(made, sdp.sparsest(links, gap, nonnegative, solver="SCS")[0])
    assert_deployable(made, links, gap)


@SIGNS
@pytest.mark.parametrize("gap", GAPS)
def test_two_solvers_agree_on_the_optimum(gap: float, nonnegative: bool) -> None:
    links = GRAPHS["sparse"](9)
    made = design(links.astype(int), gap, nonnegative=nonnegative)
    one, other = (sdp.sparsest(links, gap, nonnegative, solver=solver)[0] for solver in sdp.TIGHT)
    assert one == pytest.approx(other, rel=1e-6, abs=1e-7)
    assert_optimal(made, one)
    assert_optimal(made, other)


@pytest.mark.parametrize("m", [2, 4, 7])
def test_isolated_agents_pay_gap_times_m_minus_one(m: int) -> None:
    # C = (1 - gap) I + gap 11^T/m; no C does with less, because its trace is at most 1 + (m - 1)(1 - gap).
    for gap in GAPS:
        made = design(np.zeros((m, m)), gap)
        assert_optimal(made, gap * (m - 1))
        np.testing.assert_allclose(made.combination, (1 - gap) * np.eye(m) + gap / m, atol=1e-3)


@SIGNS
@KINDS
def test_a_gap_of_one_gives_complete_averaging(kind: str, nonnegative: bool) -> None:
    links = GRAPHS[kind](6)
    made = design(links.astype(int), 1.0, nonnegative=nonnegative)
    np.testing.assert_array_equal(made.combination, np.full((6, 6), 1 / 6))
    assert made.objective == pytest.approx((off_diagonal(6) & ~links).sum() / 6)
    assert made.lower_bound == pytest.approx(made.objective)
    assert_deployable(made, links, 1.0)


@SIGNS
@pytest.mark.parametrize(
    ("kind", "m", "gap"), [("ring", 8, 0.1), ("star", 6, 0.2), ("line", 7, 0.05), ("dense", 12, 0.4)]
)
def test_where_the_needed_links_suffice_they_get_their_fastest_weights(
    kind: str, m: int, gap: float, nonnegative: bool
) -> None:
    links = GRAPHS[kind](m)
    made = design(links.astype(int), gap, nonnegative=nonnegative)
    assert made.objective == 0.0
    assert made.lower_bound == 0.0
    assert made.floor_cost == 0.0
    np.testing.assert_array_equal((made.combination != 0) & off_diagonal(m), links)
    least = sdp.fastest(links, nonnegative)[0]
    assert least - 1e-7 <= radius_of(made.combination) <= least + 0.02 * (1 - least)
    assert_deployable(made, links, gap)


def test_a_larger_gap_costs_more_and_never_less_than_a_smaller_one() -> None:
    links = GRAPHS["line"](9)
    objectives = [design(links, gap).objective for gap in (0.02, 0.1, 0.3, 0.6, 0.9, 1.0)]
    assert objectives[0] == 0.0
    assert np.all(np.diff(objectives) > 0)


@pytest.mark.parametrize(
    ("kind", "m", "gap"), [("sparse", 11, 0.4), ("line", 9, 0.3), ("ring", 11, 0.4), ("groups", 8, 0.8)]
)
def test_unneeded_pairs_without_weight_in_the_optimum_stay_without_a_link(kind: str, m: int, gap: float) -> None:
    links = GRAPHS[kind](m)
    made, (_, best) = design(links, gap), sdp.sparsest(links, gap)
    silent = off_diagonal(m) & ~links & (abs(best) < 1e-6)
    assert silent.any()
    np.testing.assert_array_equal(made.combination[silent], np.zeros(silent.sum()))


def test_counts_and_the_diagonal_do_not_matter() -> None:
    links = by_pairs(5, (0, 1), (1, 2), (3, 4))
    plain = design(links.astype(int), 0.4)
    counted = np.where(links, np.arange(25).reshape(5, 5) + 1, 0) + np.diag([3, 0, 7, 1, 2])
    np.testing.assert_array_equal(design(counted, 0.4).combination, plain.combination)
    np.testing.assert_array_equal(design(counted.tolist(), 0.4).combination, plain.combination)


def test_the_tolerance_decides_how_near_the_optimum_a_design_comes() -> None:
    links = GRAPHS["sparse"](10)
    optimum = sdp.sparsest(links, 0.5)[0]
    for tolerance in (1e-2, 1e-3, 1e-6):
        made = design(links, 0.5, tolerance=tolerance)
        assert -1e-7 <= made.objective - optimum <= tolerance * optimum + 1e-6
        assert_deployable(made, links, 0.5)


def test_the_same_input_gives_the_same_bits() -> None:
    shared = GRAPHS["sparse"](9).astype(int)
    first, second = design(shared, 0.5), design(shared.copy(), 0.5)
    np.testing.assert_array_equal(first.combination, second.combination)
    assert (first.objective, first.lower_bound, first.iterations) == (
        second.objective,
        second.lower_bound,
        second.iterations,
    )


def test_progress_is_told_as_the_iterations_go() -> None:
    told: list[tuple[int, str]] = []
    made = design(GRAPHS["line"](6), 0.5, progress=lambda iteration, reached: told.append((iteration, reached)))
    assert told
    assert told[-1][0] == made.iterations
    assert f"objective {made.objective:.5g}" in told[-1][1]


CUBE = np.array([[(k ^ z).bit_count() == 1 for z in range(8)] for k in range(8)])
AT_THE_LIMIT = {  # the least radius that the needed links can have, known exactly
    "star of 9": (GRAPHS["star"](9), False, 0.8),
    "star of 6": (GRAPHS["star"](6), True, 0.8),
    "path of 4": (GRAPHS["line"](4), False, np.cos(np.pi / 4)),
    "cube": (CUBE, False, 0.5),
    "path of 11": (GRAPHS["line"](11), False, np.cos(np.pi / 11)),
}


@pytest.mark.parametrize("case", AT_THE_LIMIT)
def test_a_gap_that_the_needed_links_just_reach_adds_none(case: str) -> None:
    links, nonnegative, radius = AT_THE_LIMIT[case]
    made = design(links, 1 - radius, nonnegative=nonnegative)
    assert made.objective == made.lower_bound == 0.0
    assert_deployable(made, links, 1 - radius)


@pytest.mark.parametrize("case", AT_THE_LIMIT)
@pytest.mark.parametrize("beyond", [1e-2, 1e-4, 1e-6])
def test_a_gap_just_beyond_the_needed_links_adds_little(case: str, beyond: float) -> None:
    links, nonnegative, radius = AT_THE_LIMIT[case]
    made = design(links, 1 - radius * (1 - beyond), nonnegative=nonnegative)
    assert made.objective <= 20 * beyond
    assert made.objective - made.lower_bound <= 1e-4 * made.objective + 2e-6
    assert_deployable(made, links, 1 - radius * (1 - beyond))


@pytest.mark.parametrize("beyond", [0.0, 1e-8])
def test_a_slow_limit_is_still_met_nearly(beyond: float) -> None:
    """A long path converges slowly: its fastest weights get as little of a feasible matrix as the gap needs."""
    links, radius = GRAPHS["line"](20), np.cos(np.pi / 20) * (1 - beyond)
    made = design(links, 1 - radius)
    assert made.objective <= 3e-6
    assert_deployable(made, links, 1 - radius)


def test_the_gap_is_reported_as_it_was_given() -> None:
    assert design(GRAPHS["line"](4), 0.3).gap == 0.3
