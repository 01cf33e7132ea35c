"""Boundary rows over links that may be down: which arrive, and how old those are that stand in for others."""

import numpy as np

from gossamer.topology import Deliveries, Failing, Routes, Switching, complete, line, metropolis_weights, plan_routes

LINE = line(4)
DEMAND = np.where(complete(4), 3.0, 0.0)


def switching(*down: list[tuple[int, int]]) -> Switching:
    """A line of 4 agents whose links are down in each step as told."""
    steps = np.repeat(LINE[None], len(down), axis=0)
    for step, pairs in enumerate(down):
        for k, z in pairs:
            steps[step, k, z] = steps[step, z, k] = False
    return Switching(metropolis_weights(LINE), steps)


def test_rows_take_any_path_of_the_step_or_their_planned_route() -> None:
    ring = np.array(LINE)
    ring[0, 3] = ring[3, 0] = True
    steps = np.stack([ring, ring])
    steps[1, 0, 1] = steps[1, 1, 0] = False
    sequence = Switching(metropolis_weights(ring), steps)
    routes = plan_routes(ring, DEMAND)
    assert routes.path(0, 2) == (0, 1, 2)
    relayed, dropped = (Deliveries(sequence, complete(4), routes, how, 10) for how in ("relay", "drop"))
    assert relayed.arriving(0).all()
    assert dropped.arriving(0).all()
    assert relayed.arriving(1).all()
    k, z = np.nonzero(~dropped.arriving(1))
    assert {(int(a), int(b)) for a, b in zip(k, z, strict=True)} == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1)}


def test_without_a_path_nothing_arrives() -> None:
    found = Deliveries(switching([(1, 2)]), complete(4), Routes(), "relay", 10).arriving(0)
    np.testing.assert_array_equal(found, np.kron(np.eye(2, dtype=bool), np.ones((2, 2), dtype=bool)))


def test_last_rows_are_as_old_as_the_step_that_brought_them() -> None:
    sequence = switching([(0, 1)], [], [(0, 1)], [(0, 1)], [(0, 1)], [(0, 1)])
    found = Deliveries(sequence, LINE, Routes(), "last", 3)
    assert [int(found.ages(step)[0, 1]) for step in range(8)] == [-1, 0, 1, 2, 3, -1, -1, 0]
    assert [int(found.ages(step)[1, 2]) for step in range(8)] == [0] * 8
    assert int(Deliveries(sequence, LINE, Routes(), "drop", 3).ages(2)[0, 1]) == -1
    counted = found.summarise(range(6))
    assert (counted.arrived, counted.replaced) == (13 / 18, 3 / 18)
    assert (counted.mean_age, counted.largest_age, counted.links_up) == (2.0, 3, 13 / 18)


def test_all_rows_of_no_step_arrive() -> None:
    found = Deliveries(Failing(metropolis_weights(LINE), 0.5, 0), LINE, Routes(), "drop", 3).summarise([])
    assert (found.links_up, found.arrived, found.replaced) == (1.0, 1.0, 0.0)
