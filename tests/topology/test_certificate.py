"""The certificate of a topology: its numbers by hand, and its JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.graphs import cycles
from topology.cases import by_pairs, path

from gossamer.topology import certify, complete, design, line, links_of, metropolis_weights, ring

KEYS = {
    *("agents", "combination", "spectral_radius", "spectrum", "objective", "lower_bound"),
    *("needed_links", "added_links", "missing_links", "holds", "asymmetry", "row_error", "off_links", "components"),
    "own_weight",
    *("nonnegative", "sparsity", "gap", "floor", "floor_cost", "iterations", "rounds"),
    *("parameters", "bytes_per_round", "sequence"),
}
LAZY = np.array([[0.75, 0.25], [0.25, 0.75]])  # rho = 1/2


def two_agents(rho: float) -> np.ndarray:
    return np.array([[1 + rho, 1 - rho], [1 - rho, 1 + rho]]) / 2


def test_a_family_by_hand() -> None:
    # 0 - 1 - 2 - 3 carries what needs 0 - 1, 1 - 2 and 0 - 2: one link is missing, one is added.
    C = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
    told = certify(C, path(4), by_pairs(4, (0, 1), (1, 2), (0, 2))).to_dict(num_parameters=10)
    assert set(told) == KEYS
    assert told["agents"] == 4
    assert told["combination"] == C.tolist()
    assert told["needed_links"] == [[0, 1], [1, 2]]
    assert told["added_links"] == [[2, 3]]
    assert told["missing_links"] == [[0, 2]]
    assert told["objective"] == pytest.approx(2 / 3)
    assert told["holds"] == {"A1": True, "A2": True, "A3": True}
    assert told["spectrum"] == pytest.approx(sorted((1 + 2 * np.cos(np.pi * j / 4)) / 3 for j in range(4)))
    assert told["spectral_radius"] == pytest.approx((1 + np.sqrt(2)) / 3)
    assert told["sparsity"] == 6 / 16
    assert told["components"] == 1
    assert told["nonnegative"] is True
    assert (told["parameters"], told["bytes_per_round"]) == (10, 6 * 10 * 4)
    assert [told[key] for key in ("lower_bound", "gap", "floor", "floor_cost", "iterations")] == [None] * 5


def test_a_violation_is_measured() -> None:
    C = np.array([[0.5, 0.6, 0.0], [0.4, 0.6, 0.0], [0.1, -0.2, 1.0]])
    told = certify(C, line(3), line(3)).to_dict(1)
    assert told["asymmetry"] == pytest.approx(0.2)
    assert told["row_error"] == pytest.approx(0.1)
    assert told["off_links"] == pytest.approx(0.1)
    assert told["nonnegative"] is False
    assert (told["holds"]["A1"], told["holds"]["A3"]) == (False, False)


def test_rounds_by_hand() -> None:
    assert certify(LAZY, line(2), line(2)).rounds == 10  # 2^-10 < 1e-3 < 2^-9
    assert certify(metropolis_weights(line(2)), line(2), line(2)).rounds == 1
    assert certify(np.eye(2), ~line(2) & False, line(2)).rounds is None
    assert certify(two_agents(-1.5), line(2), line(2)).rounds is None


@given(st.floats(2e-3, 0.99))
def test_rounds_are_the_first_power_below_a_thousandth(rho: float) -> None:
    rounds = certify(two_agents(rho), line(2), line(2)).rounds
    assert rounds is not None
    assert rho**rounds <= 1e-3 * (1 + 1e-9)
    assert rho ** (rounds - 1) > 1e-3 * (1 - 1e-9)


@pytest.mark.parametrize(("links", "directed"), [(ring(5), 10), (complete(4), 12), (line(2), 2)])
def test_bytes_of_a_round_count_both_directions(links: np.ndarray, directed: int) -> None:
    found = certify(metropolis_weights(links), links, links)
    assert found.bytes_per_round(100) == directed * 400
    assert found.bytes_per_round(100, bytes_each=8) == directed * 800
    assert found.num_agents == len(links)


def test_a_design_tells_its_gap_its_floor_and_its_bound() -> None:
    needed = by_pairs(5, (0, 1), (1, 2), (3, 4))
    made = design(needed, 0.4, floor=0.01)
    C = made.combination
    told = certify(C, links_of(C), needed, made).to_dict(7)
    assert told["gap"] == pytest.approx(0.4)
    assert told["floor"] == 0.01
    assert told["floor_cost"] == made.floor_cost
    assert told["iterations"] == made.iterations
    assert told["lower_bound"] == made.lower_bound
    assert told["objective"] == pytest.approx(made.objective)
    assert 0 < told["lower_bound"] <= told["objective"]
    assert told["needed_links"] == [[0, 1], [1, 2], [3, 4]]
    assert told["added_links"] == [[k, z] for k in range(5) for z in range(k + 1, 5) if C[k, z] and not needed[k, z]]
    assert told["holds"] == {"A1": True, "A2": True, "A3": True}


def test_a_design_that_misses_its_gap_fails_a2() -> None:
    made = replace(design(line(2), 0.4), combination=LAZY)
    assert certify(LAZY, line(2), line(2), replace(made, gap=0.5)).assumptions.holds["A2"] is True
    assert certify(LAZY, line(2), line(2), replace(made, gap=0.51)).assumptions.holds["A2"] is False


def test_certificates_are_json() -> None:
    needed = by_pairs(4, (0, 1), (2, 3))
    made, averaging = design(needed, 0.5), design(needed, 1.0)
    cases = [
        certify(metropolis_weights(ring(4)), ring(4), needed),
        certify(made.combination, links_of(made.combination), needed, made),
        certify(averaging.combination, complete(4), needed, averaging),
        certify(np.eye(4), needed & False, needed),
    ]
    for found in cases:
        told = found.to_dict(3)
        assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_links_that_leave_agents_apart_take_for_ever() -> None:
    links = cycles(2, 3) > 0  # the spectral radius may come out as 1 - 1e-16
    assert certify(metropolis_weights(links), links, links).rounds is None
