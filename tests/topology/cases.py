"""Agent graphs of many kinds for the tests of Section IV, and the requirements on a deployable matrix."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from oracles.graphs import cycles, random_adjacency

from gossamer.topology import Design, certify, links_of

Links = NDArray[np.bool_]


def path(m: int) -> Links:
    return np.eye(m, k=1) + np.eye(m, k=-1) > 0


def hub(m: int) -> Links:
    links = np.zeros((m, m), dtype=bool)
    links[0, 1:] = links[1:, 0] = True
    return links


GRAPHS: dict[str, Callable[[int], Links]] = {
    "alone": lambda m: np.zeros((m, m), dtype=bool),
    "groups": lambda m: cycles(m // 2, m - m // 2) > 0,
    "ring": lambda m: cycles(m) > 0,
    "star": hub,
    "line": path,
    "sparse": lambda m: random_adjacency(m, 1.5 / m, m, connected=False) > 0,
    "dense": lambda m: random_adjacency(m, 0.5, m) > 0,
}


def by_pairs(m: int, *pairs: tuple[int, int]) -> Links:
    links = np.zeros((m, m), dtype=bool)
    for k, z in pairs:
        links[k, z] = links[z, k] = True
    return links


def off_diagonal(m: int) -> Links:
    return ~np.eye(m, dtype=bool)


def price(links: Links) -> NDArray[np.float64]:
    """A of Sec. IV: 1 where two agents share no data edge, 0 elsewhere and on the diagonal."""
    return (off_diagonal(len(links)) & ~links).astype(float)


def radius_of(C: NDArray[np.float64]) -> float:
    """rho(C - 11^T/m) by a solver that does not assume symmetry."""
    return float(abs(np.linalg.eigvals(C - 1 / len(C))).max())


def assert_deployable(made: Design, links: Links, gap: float) -> None:
    """(A1), (A2) with the gap, (A3) on the certificate's links, and the floor on every needed link."""
    C, m = made.combination, len(links)
    np.testing.assert_array_equal(made.needed_links, links)
    np.testing.assert_array_equal(C, C.T)
    assert abs(C.sum(1) - 1).max() <= 1e-14 * m
    assert radius_of(C) <= 1 - gap + 1e-12
    assert (abs(C[links]) >= made.floor).all()
    assert 0 < made.floor <= 1 / m
    if made.nonnegative:
        assert C.min() >= 0
    _assert_certified(made)


def _assert_certified(made: Design) -> None:
    C, m = made.combination, len(made.needed_links)
    found = certify(C, links_of(C), made.needed_links, made).to_dict(1)
    assert found["holds"] == {"A1": True, "A2": True, "A3": True}
    pairs = {tuple(pair) for pair in found["needed_links"] + found["added_links"]}
    silent = [C[k, z] for k in range(m) for z in range(m) if k < z and (k, z) not in pairs]
    assert not np.any(silent)
    assert found["missing_links"] == []
    unneeded = ~made.needed_links & off_diagonal(m)
    np.testing.assert_allclose([made.objective, found["objective"]], abs(C[unneeded]).sum(), rtol=1e-13)
    assert 0 <= made.lower_bound <= made.objective
