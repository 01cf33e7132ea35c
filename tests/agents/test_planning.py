"""Sites that pool nothing plan, by messages between neighbours, what a cutter of the whole graph would cut."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from agents.cases import Case, make_case, watched
from scipy import sparse

from gossamer import topology
from gossamer.agents.exchange import Outbox
from gossamer.agents.planning import Site, plan_site, planned_shapes
from gossamer.agents.share import Share, make_share, make_whole
from gossamer.assignment import shared_edges
from gossamer.data import DataGraph
from gossamer.data.site import SiteData, make_site
from gossamer.errors import GossamerError
from gossamer.runtime.simulation import run_together

M = 4  # agent 3 has no label


def site_data(graph: DataGraph, owner: np.ndarray, k: int) -> SiteData:
    """What agent k knows, in an order of its own."""
    own = np.flatnonzero(owner == k)[::-1]
    touching = (owner[graph.edges] == k).any(1)
    elsewhere = np.setdiff1d(graph.edges[touching], own)
    return make_site(
        k,
        own,
        graph.features[own],
        graph.targets[own],
        {name: getattr(graph, name)[own] for name in ("train", "validation", "test")},
        graph.edges[touching],
        graph.weights[touching],
        dict(zip(elsewhere.tolist(), owner[elsewhere].tolist(), strict=True)),
        graph.num_classes,
    )


def sites(case: Case, shift: str, links: np.ndarray, combination: np.ndarray | None = None) -> list[Site]:
    return [
        Site(
            k,
            M,
            tuple(np.flatnonzero(links[k]).tolist()),
            site_data(case.graph, case.owner, k),
            tuple(layer.filter for layer in case.network.layers),
            shift,
            "terms",
            None if combination is None else combination[k],
        )
        for k in range(M)
    ]


def links_of(case: Case) -> np.ndarray:
    return topology.needed(shared_edges(case.graph, case.owner, M))


def assert_same(found: Share, expected: Share) -> None:
    for field in fields(Share):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if sparse.issparse(other):
            np.testing.assert_array_equal(one.toarray(), other.toarray())
        elif field.name in ("train_fields", "full_fields"):
            for mine, theirs in zip(one, other, strict=True):
                np.testing.assert_array_equal(np.stack(mine), np.stack(theirs))
        elif field.name == "masks":
            for name, mask in other.items():
                np.testing.assert_array_equal(one[name], mask)
        elif field.name == "entries":
            for mine, theirs in zip(one, other, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"kind": "chebyshev", "order": 3, "shift": "scaled-laplacian"},
        {"order": 2, "shift": "laplacian", "sparse_features": False},
        {"batch": 4, "shift": "random-walk", "num_layers": 1},
        {"kind": "mlp", "shift": "identity"},
    ],
    ids=str,
)
def test_sites_plan_the_shares_that_a_cutter_cuts(how: dict[str, Any]) -> None:
    case = make_case(**how)
    links = links_of(case)
    C = topology.metropolis(links)
    planned = sites(case, how.get("shift", "normalized"), links)
    for k, (share, apart) in enumerate(run_together([plan_site(site) for site in planned])):
        filters = [layer.filter for layer in case.network.layers]
        assert_same(share, make_share(make_whole(case.graph, case.shift, filters, case.owner, C), [k]))
        assert apart == int(sparse.csgraph.shortest_path(sparse.csr_array(links), unweighted=True).max())


def test_the_farthest_agents_are_counted_along_the_links() -> None:
    case = make_case()
    owner = np.minimum(np.arange(24) // 6, M - 1)  # a path, if edges between distant blocks are dropped
    near = abs(owner[case.graph.edges[:, 0]] - owner[case.graph.edges[:, 1]]) <= 1
    case = replace(case, graph=case.graph.restricted_to(near), owner=owner)
    found = run_together([plan_site(site) for site in sites(case, "normalized", links_of(case))])
    assert [apart for _, apart in found] == [M - 1] * M


def test_a_given_row_of_c_is_used_as_it_is() -> None:
    case = make_case()
    links = links_of(case)
    C = topology.uniform(links)
    for k, (share, _) in enumerate(run_together([plan_site(s) for s in sites(case, "normalized", links, C)])):
        np.testing.assert_array_equal(share.combination, C[[k]])


def test_every_exchange_expects_what_was_announced() -> None:
    case = make_case(order=2)
    seen: dict[int, list[Any]] = {k: [] for k in range(M)}
    planned = sites(case, "normalized", links_of(case))
    run_together([watched(plan_site(site), lambda box, k=site.agent: seen[k].append(box.expected)) for site in planned])
    for site in planned:
        assert seen[site.agent] == planned_shapes(site)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: replace(s, terms="other"), "agent 0 cannot train with agent 1, which has other settings or classes"),
        (lambda s: replace(s, weights=np.full(M, 0.25)), "which has another weight C"),
        (lambda s: replace(s, data=replace(s.data, weights=s.data.weights + 1)), "which has other edges between"),
        (lambda s: replace(s, data=replace(s.data, features=s.data.features[:, :4])), "4 features a vertex, and this"),
    ],
)
def test_neighbours_that_mean_another_run_are_named(change: Any, complaint: str) -> None:
    planned = sites(make_case(), "normalized", ~np.eye(M, dtype=bool))
    planned[1] = change(planned[1])
    with pytest.raises(GossamerError, match=complaint):
        run_together([plan_site(site) for site in planned])


@pytest.mark.parametrize("lie", [1e308, 1e6 + 0.5])
@pytest.mark.parametrize("last", [1, M])
def test_counts_that_cannot_be_are_refused(lie: float, last: int) -> None:
    """A neighbour that tells them ends the planning with a message: in the sums of counts, and in those of links."""
    planned = sites(make_case(), "normalized", ~np.eye(M, dtype=bool))
    lied_at = len(planned_shapes(planned[1])) - last

    def told(box: Outbox) -> None:
        for vector in box.messages.values() if box.index == lied_at else ():
            vector.fill_(lie)

    with pytest.raises(GossamerError, match="numbers of vertices, training examples or links that cannot be"):
        run_together([plan_site(planned[0]), watched(plan_site(planned[1]), told), *map(plan_site, planned[2:])])
