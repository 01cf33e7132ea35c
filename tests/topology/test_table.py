"""The topology seam: a value in TOPOLOGIES is found by its name, and wrong links are refused."""

import numpy as np
import pytest

from gossamer import topology
from gossamer.errors import GossamerError
from gossamer.runs.connecting import connect
from gossamer.runs.settings import Settings
from gossamer.topology import TOPOLOGIES, Topology

B = np.array([[0, 3, 0, 0], [3, 0, 2, 0], [0, 2, 0, 0], [0, 0, 0, 0]], dtype=np.float64)


def hypercube(num_agents: int) -> topology.Links:
    """Agents whose numbers differ in one bit talk."""
    k, z = np.indices((num_agents, num_agents))
    different = k ^ z
    return np.asarray((different > 0) & (different & (different - 1) == 0))


def settings(name: str, **changes: object) -> Settings:
    return Settings(agents=4).model_copy(update={"topology": name, **changes})


def test_a_family_added_from_outside_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOPOLOGIES, "hypercube", Topology(lambda B, seed: hypercube(len(B))))
    found = connect(B, settings("hypercube"))
    np.testing.assert_array_equal(found.links, topology.ring(4)[[0, 1, 3, 2]][:, [0, 1, 3, 2]])
    np.testing.assert_array_equal(found.combination, topology.metropolis_weights(found.links))
    assert all(found.assumptions.holds.values())


def test_links_may_depend_on_the_data_and_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        TOPOLOGIES,
        "mine",
        Topology(lambda B, seed: topology.needed_links(B) | topology.random_connected(len(B), seed)),
    )
    found = connect(B, settings("mine", seed=7))
    np.testing.assert_array_equal(found.links, (B > 0) | topology.random_connected(4, 7))


def test_a_design_added_from_outside_brings_its_own_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def tight(shared_edges: np.ndarray, gap: float, **options: object) -> topology.Design:
        return topology.design(shared_edges, gap / 2, **options)  # type: ignore[arg-type]

    monkeypatch.setitem(TOPOLOGIES, "tight", Topology(TOPOLOGIES["complete"].links, tight))
    found = connect(B, settings("tight", gap=0.8))
    np.testing.assert_array_equal(found.combination, topology.design(B, 0.4).combination)
    assert found.design is not None


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (np.ones((4, 4), dtype=bool), "join no agent to itself"),
        (np.triu(np.ones((4, 4), dtype=bool), 1), "must be symmetric"),
        (topology.ring(5), r"4 x 4, one row for each agent; got bool \(5, 5\)"),
        (topology.ring(4).astype(float), "must be booleans"),
    ],
)
def test_wrong_links_are_refused(links: np.ndarray, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOPOLOGIES, "wrong", Topology(lambda B, seed: links))
    with pytest.raises(GossamerError, match=message):
        connect(B, settings("wrong"))
