"""Deployable designs: floors on needed links, links added where a support is too small, warm starts."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import sdp
from oracles.graphs import random_adjacency
from topology.cases import GRAPHS, Links, assert_deployable, by_pairs, off_diagonal, radius_of

from gossamer.errors import GossamerError, GossamerWarning
from gossamer.topology import Design, certify, design, links_of, metropolis_weights
from gossamer.topology.admm import AdmmState, initial_state, problem_29
from gossamer.topology.fastest import check_lower_bound

designing = sys.modules["gossamer.topology.design"]  # the function of this name hides the module

BOUND = {  # needed links, gap and nonnegative: cases in which a floor of 1/(2m) binds
    "two paths to the far agent": (
        by_pairs(6, (0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 4), (1, 5), (2, 3), (3, 5), (4, 5)),
        0.7,
        False,
    ),
    "a busy agent": (by_pairs(6, (0, 2), (0, 5), (1, 2), (1, 4), (1, 5), (2, 5), (3, 5), (4, 5)), 0.5, True),
    "enough without the floor": (
        by_pairs(6, (0, 1), (0, 2), (0, 3), (0, 5), (1, 2), (1, 3), (2, 3), (2, 4), (4, 5)),
        0.5,
        True,
    ),
    "a negative weight": (random_adjacency(7, 0.6, 10) > 0, 0.5, False),
}


def signed_floors(made: Design) -> np.ndarray:
    return np.where(made.needed_links, made.floor * np.sign(made.combination), 0.0)


@pytest.mark.parametrize("case", BOUND)
def test_a_floor_that_binds_costs_what_the_solver_says(case: str) -> None:
    links, gap, nonnegative = BOUND[case]
    made = design(links, gap, nonnegative=nonnegative, floor=0.5 / len(links))
    without = sdp.sparsest(links, gap, nonnegative)[0]
    exact = sdp.sparsest(links, gap, nonnegative, signed_floors(made))[0]
    assert exact > without + 1e-3
    assert exact - 1e-7 <= made.objective <= exact * (1 + 1e-4) + 1e-6
    assert made.floor_cost >= exact - without - 1e-6
    assert made.lower_bound <= without + 1e-7
    assert_deployable(made, links, gap)


def test_a_floor_of_the_usual_size_is_asked_for_to_the_digit() -> None:
    """The needed links reach this gap without the floor, not with it: the objective is as small as the floor."""
    links = by_pairs(6, (0, 1), (0, 2), (0, 3), (0, 5), (1, 2), (1, 3), (2, 3), (2, 4), (4, 5))
    made = design(links, 0.5, nonnegative=True)
    exact = sdp.sparsest(links, 0.5, True, signed_floors(made))[0]
    assert 1e-4 < exact == pytest.approx(made.objective, rel=1e-3, abs=1e-6)


def test_a_floor_keeps_the_sign_of_a_negative_weight() -> None:
    links, gap, _ = BOUND["a negative weight"]
    made = design(links, gap, floor=0.3 / 7)
    assert (made.combination[links] <= -0.3 / 7).any()
    optimum = sdp.sparsest(links, gap, False, signed_floors(made))[0]
    assert made.objective == pytest.approx(optimum, rel=1e-4)


@pytest.mark.parametrize("kind", ["ring", "line", "dense"])
def test_a_floor_that_does_not_bind_costs_nothing(kind: str) -> None:
    links = GRAPHS[kind](8)
    made = design(links, 0.5)
    assert made.objective > 0
    assert made.floor_cost == 0.0
    assert made.floor == pytest.approx(1e-3 / 8)
    assert abs(made.combination[links]).min() > 2 * made.floor


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("share", [0.01, 0.2, 0.35, 0.5])
@pytest.mark.parametrize("kind", ["star", "line", "sparse", "dense"])
def test_a_floor_of_the_user_is_respected(kind: str, share: float, nonnegative: bool) -> None:
    links = GRAPHS[kind](7)
    made = design(links, 0.6, floor=share / 7, nonnegative=nonnegative, tolerance=1e-2)
    assert made.floor == share / 7
    assert_deployable(made, links, 0.6)


@pytest.mark.parametrize("kind", ["alone", "groups", "line", "sparse"])
def test_a_support_that_cannot_reach_the_gap_gets_the_links_it_lacks(kind: str) -> None:
    links, radius = GRAPHS[kind](6), 0.4
    unneeded = off_diagonal(6) & ~links
    problem = designing._Problem(
        links, problem_29(unneeded.astype(float)), 1 - radius, False, 1e-4, 1e-4, 5000, lambda iteration, reached: None
    )
    begin = initial_state(6)
    starved = AdmmState(begin.C, np.where(unneeded, 0.0, begin.Z), begin.U, begin.penalty)
    made = designing._solve_on_support(problem, starved, 0.0, 1e-6, 0)
    assert made.objective == pytest.approx(sdp.sparsest(links, 1 - radius)[0], rel=1e-4)
    assert_deployable(made, links, 1 - radius)


@pytest.mark.filterwarnings("ignore::gossamer.errors.GossamerWarning")
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("gap", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["alone", "groups", "sparse", "line"])
def test_running_out_of_iterations_still_gives_a_deployable_matrix(kind: str, gap: float, nonnegative: bool) -> None:
    links = GRAPHS[kind](15)
    made = design(links, gap, nonnegative=nonnegative, max_iterations=10, tolerance=1e-9)
    assert made.iterations == 20
    assert_deployable(made, links, gap)
    assert made.lower_bound <= sdp.sparsest(links, gap, nonnegative)[0] + 1e-6


@pytest.mark.parametrize(("kind", "gap", "iterations"), [("sparse", 0.5, 10), ("line", 0.3, 20)])
def test_running_out_of_iterations_warns(kind: str, gap: float, iterations: int) -> None:
    with pytest.warns(GossamerWarning, match=f"stopped after {2 * iterations} iterations.*allow more iterations"):
        made = design(GRAPHS[kind](15), gap, max_iterations=iterations)
    assert made.objective > (1 + 1e-4) * made.lower_bound


@pytest.mark.filterwarnings("ignore::gossamer.errors.GossamerWarning")
def test_without_any_feasible_candidate_metropolis_and_complete_averaging_are_mixed() -> None:
    links = GRAPHS["line"](15)
    made = design(links, 0.05, max_iterations=10)
    share = 0.95 / radius_of(metropolis_weights(links))
    np.testing.assert_allclose(made.combination, share * metropolis_weights(links) + (1 - share) / 15, atol=1e-14)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_a_warm_start_gives_the_same_answer_in_fewer_iterations(nonnegative: bool) -> None:
    links = GRAPHS["line"](14)
    cold, near = (design(links, gap, nonnegative=nonnegative) for gap in (0.3, 0.29))
    warm = design(links, 0.3, nonnegative=nonnegative, warm_start=near.warm_start)
    assert warm.objective == pytest.approx(cold.objective, rel=2e-4)
    assert warm.lower_bound == pytest.approx(cold.lower_bound, rel=1e-3)
    assert warm.iterations < cold.iterations
    assert_deployable(warm, links, 0.3)


@pytest.mark.parametrize("gap", [0.05, 0.3, 0.8])
def test_a_warm_start_from_anywhere_does_not_change_the_objective(gap: float) -> None:
    links = GRAPHS["sparse"](8)
    far = design(links, 0.99).warm_start
    warm, cold = design(links, gap, warm_start=far), design(links, gap)
    assert warm.objective == pytest.approx(cold.objective, rel=2e-4, abs=2e-6)


@pytest.mark.filterwarnings("ignore::gossamer.errors.GossamerWarning")
@settings(max_examples=200)
@given(
    st.integers(2, 10),
    st.sampled_from([0.0, 0.15, 0.4, 0.8]),
    st.integers(0, 10**6),
    st.booleans(),
    st.floats(0.02, 1.0),
    st.booleans(),
)
def test_every_design_is_deployable(
    m: int, density: float, seed: int, connected: bool, gap: float, nonnegative: bool
) -> None:
    links: Links = random_adjacency(m, density, seed, connected) > 0
    made = design(links, gap, nonnegative=nonnegative, max_iterations=1000)
    assert_deployable(made, links, gap)
    C = made.combination
    found = certify(C, links_of(C), links, made)
    assert found.assumptions.components == 1
    assert found.rounds is not None


def test_a_bound_above_what_a_feasible_matrix_reaches_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    links = GRAPHS["sparse"](8)
    honest = design(links, 0.6)
    assert honest.objective > 0

    def too_high(*problem: object) -> tuple[float, float]:
        return 1.1 * honest.objective, 1.0

    monkeypatch.setattr(designing, "lower_bound", too_high)
    with pytest.raises(GossamerError, match="one of them is wrong"):
        design(links, 0.6)


def test_a_bound_that_rounding_puts_above_is_what_was_reached() -> None:
    assert check_lower_bound(0.5 + 1e-12, 0.5) == 0.5
    assert check_lower_bound(0.4, 0.5) == 0.4
    with pytest.raises(GossamerError, match="one of them is wrong"):
        check_lower_bound(0.5 + 1e-8, 0.5)
