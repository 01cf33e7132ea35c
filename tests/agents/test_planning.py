"""Sites that do not pool their data plan, by messages between neighbours, the shares of the whole graph."""

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from agents.cases import Case, make_case, watched
from scipy import sparse

from gossamer import topology
from gossamer.agents.exchange import Outbox, join_parts
from gossamer.agents.plan import message_rows
from gossamer.agents.planning import plan_site
from gossamer.agents.planning_exchanges import Site, list_planning_exchanges
from gossamer.agents.relays import select_routes
from gossamer.agents.share import Share, TopologyShare, make_share, make_whole
from gossamer.agents.site_sums import complete_share, measure_site, sum_sites
from gossamer.agents.sums import plan_tree
from gossamer.assignment import shared_edges
from gossamer.data import DataGraph
from gossamer.data.site import SiteData, make_site
from gossamer.data.standardisation import measure_transform
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError

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
        labels=graph.task == "multilabel",
        sample_weights=None if graph.sample_weights is None else graph.sample_weights[own],
    )


def sites(
    case: Case, shift: str, links: np.ndarray, combination: np.ndarray | None = None, relays: bool = False
) -> list[Site]:
    return [
        Site(
            k,
            M,
            tuple(np.flatnonzero(links[k]).tolist()),
            site_data(case.graph, case.owner, k),
            tuple(layer.gather for layer in case.network.layers),
            shift,
            "terms",
            None if combination is None else combination[k],
            relays=relays,
        )
        for k in range(M)
    ]


def links_of(case: Case) -> np.ndarray:
    return topology.needed_links(shared_edges(case.graph, case.owner, M))


def assert_same(found: Share, expected: Share) -> None:
    for field in fields(Share):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if sparse.issparse(other):
            np.testing.assert_array_equal(one.toarray(), other.toarray())
        elif field.name == "topologies":
            for mine, theirs in zip(one, other, strict=True):
                assert_same_topology(mine, theirs)
        elif field.name == "routes" and other is not None:
            assert (one.agent, one.longest, one.paths) == (other.agent, other.longest, other.paths)
            np.testing.assert_array_equal(one.train, other.train)
            np.testing.assert_array_equal(one.full, other.full)
        elif field.name == "masks":
            for name, mask in other.items():
                np.testing.assert_array_equal(one[name], mask)
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)


def assert_same_topology(found: TopologyShare, expected: TopologyShare) -> None:
    np.testing.assert_array_equal(found.combination, expected.combination)
    for mine, theirs in zip(found.entries, expected.entries, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for one, other in ((found.train_fields, expected.train_fields), (found.full_fields, expected.full_fields)):
        for sets, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(np.stack(sets), np.stack(same))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"kind": "chebyshev", "order": 3, "shift": "scaled-laplacian"},
        {"order": 2, "shift": "laplacian", "sparse_features": False},
        {"batch": 4, "shift": "random-walk", "num_layers": 1},
        {"kind": "mlp", "shift": "identity"},
        {"task": "multilabel"},
    ],
    ids=str,
)
def test_sites_plan_the_shares_of_the_whole_graph(how: dict[str, Any]) -> None:
    case = make_case(**how)
    links = links_of(case)
    C = topology.metropolis_weights(links)
    planned = sites(case, how.get("shift", "normalized"), links)
    for k, (share, apart) in enumerate(run_together([plan_site(site) for site in planned])):
        filters = [layer.gather for layer in case.network.layers]
        cut = make_share(make_whole(case.graph, [(case.shift, C)], filters, case.owner), [k])
        tree = plan_tree(links)
        assert tree is not None
        assert_same(share, replace(cut, tree=tree[k]))
        assert apart == int(sparse.csgraph.shortest_path(sparse.csr_array(links), unweighted=True).max())


@pytest.mark.parametrize("how", [{}, {"kind": "gat"}, {"kind": "chebyshev", "order": 2, "batch": 3}], ids=str)
@pytest.mark.parametrize("links", [topology.line(M), topology.star(M), topology.ring(M)], ids=["line", "star", "ring"])
def test_sites_without_links_plan_their_routes_as_a_cutter_does(how: dict[str, Any], links: np.ndarray) -> None:
    case = make_case(**how)
    C, gathers = topology.metropolis_weights(links), case.network.gathers
    routes = topology.plan_routes(links, shared_edges(case.graph, case.owner, M))
    assert routes.paths
    counts = [
        list(chain.from_iterable(message_rows(case.shift, gathers, outputs, case.owner)))
        for outputs in (case.graph.labelled, np.ones(case.graph.num_vertices, dtype=bool))
    ]
    tree = plan_tree(links)
    assert tree is not None
    for k, (share, _) in enumerate(run_together([plan_site(s) for s in sites(case, "normalized", links, C, True)])):
        cut = make_share(make_whole(case.graph, [(case.shift, C)], gathers, case.owner), [k])
        own = select_routes(k, routes.paths.values(), routes.longest, *counts)
        assert_same(share, replace(cut, tree=tree[k], routes=own))


def test_sites_that_all_have_links_plan_no_routes() -> None:
    case = make_case()
    planned = run_together([plan_site(s) for s in sites(case, "normalized", links_of(case), relays=True)])
    assert all(share.routes is None for share, _ in planned)


def test_one_sided_edges_between_sites_without_a_link_are_named() -> None:
    case = make_case()
    planned = sites(case, "normalized", topology.line(M), relays=True)
    far = next(z for z in planned[0].partners if z not in planned[0].neighbours)
    left = restrict_edges(planned[0].data, lambda owners: (owners != far).all(1))
    with pytest.raises(
        GossamerError, match=f"agent {far} reports [0-9]+ edges shared with agent 0, and agent 0 reports 0;"
    ):
        run_together([plan_site(site) for site in [replace(planned[0], data=left), *planned[1:]]])


def restrict_edges(data: SiteData, chosen: Callable[[np.ndarray], np.ndarray]) -> SiteData:
    """A site's data with the edges whose two owners are chosen."""
    kept = chosen(data.owner[data.edges])
    touched = np.union1d(np.flatnonzero(np.isin(data.owner, data.owner[data.edges[kept]])), data.edges[kept])
    known = np.isin(np.arange(len(data.owner)), touched)
    position = np.cumsum(known) - 1
    return replace(
        data,
        vertices=data.vertices[known],
        owner=data.owner[known],
        edges=position[data.edges[kept]],
        weights=data.weights[kept],
    )


def test_the_farthest_agents_are_counted_along_the_links() -> None:
    case = make_case()
    owner = np.minimum(np.arange(24) // 6, M - 1)  # a path, if edges between distant blocks are dropped
    near = abs(owner[case.graph.edges[:, 0]] - owner[case.graph.edges[:, 1]]) <= 1
    case = replace(case, graph=case.graph.restrict_to(near), owner=owner)
    found = run_together([plan_site(site) for site in sites(case, "normalized", links_of(case))])
    assert [apart for _, apart in found] == [M - 1] * M
    assert [share.tree for share, _ in found] == plan_tree(links_of(case))


@pytest.mark.parametrize("how", [{"sparse_features": False}, {}, {"batch": 4}], ids=str)
def test_sites_standardise_as_the_whole_graph_is(how: dict[str, Any]) -> None:
    case = make_case(**how)
    graph = case.graph
    if not sparse.issparse(graph.features):
        graph = replace(graph, features=graph.features * 10.0 ** np.arange(graph.num_features) + 3)
    case = replace(case, graph=graph)
    transform = measure_transform(graph)
    whole = transform.apply(graph, "float64")
    for k, share in enumerate(completed(sites(case, "normalized", links_of(case)), "float64")):
        expected = whole.features[case.owner == k]
        found, same = (part.toarray() if sparse.issparse(part) else part for part in (share.features, expected))
        np.testing.assert_allclose(found, same, rtol=0, atol=1e-12)
        np.testing.assert_allclose(share.targets, whole.targets[case.owner == k], rtol=0, atol=1e-12)
        assert share.transform is not None
        for name, part in transform.arrays().items():
            np.testing.assert_allclose(getattr(share.transform, name), part, rtol=1e-12, atol=1e-12)


def completed(given: list[Site], standardised: str | None = None) -> list[Share]:
    shares = [share for share, _ in run_together([plan_site(site) for site in given])]
    sums = run_together(
        [
            sum_sites(share, measure_site(share, site, standardised is not None), 9)
            for share, site in zip(shares, given, strict=True)
        ]
    )
    return [
        complete_share(share, site, totals, standardised or "float64")
        for share, site, totals in zip(shares, given, sums, strict=True)
    ]


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_sites_weight_examples_as_the_whole_graph_does(task: str, balanced: bool) -> None:
    case = make_case()
    random = np.random.default_rng(5)
    n = case.graph.num_vertices
    graph = replace(case.graph, sample_weights=np.where(case.owner == 2, random.random(n) + 0.5, 1.0))
    if task == "multilabel":
        graph = replace(graph, targets=random.random((n, 3)) < 0.4)
    filters = [layer.gather for layer in case.network.layers]
    C = topology.metropolis_weights(links_of(case))
    whole = make_whole(graph, [(case.shift, C)], filters, case.owner, balanced=balanced)
    given = sites(replace(case, graph=graph), "normalized", links_of(case))
    given = [replace(site, balanced=balanced) for site in given]
    own = graph.sample_weights
    assert own is not None
    for k in (0, 2):  # of agent 0 the user knows no weights, of agent 2 they are its own
        weights = own[case.owner == 2] if k == 2 else None
        given[k] = replace(given[k], data=replace(given[k].data, sample_weights=weights))
    for k, share in enumerate(completed(given)):
        cut = make_share(whole, [k])
        for found, expected in (
            (share.example_weights, cut.example_weights),
            (share.positive_weight, cut.positive_weight),
        ):
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_sums_that_no_data_has_are_refused() -> None:
    given = sites(make_case(), "normalized", links_of(make_case()))
    planned = run_together([plan_site(site) for site in given])

    def lie(box: Outbox) -> None:
        for message in box.messages.values():
            join_parts(message)[-1] = 1e9  # more nonzero entries than rows

    together = zip(planned, given, strict=True)
    plans: list[Any] = [sum_sites(share, measure_site(share, site, True), 0) for (share, _), site in together]
    plans[1] = watched(plans[1], lie)
    totals = run_together(plans)[0]
    with pytest.raises(GossamerError, match="agent 0 was sent sums over all sites that no data has"):
        complete_share(planned[0][0], given[0], totals, "float64")


def test_a_given_row_of_c_is_used_as_it_is() -> None:
    case = make_case()
    links = links_of(case)
    C = topology.max_degree_weights(links)
    for k, (share, _) in enumerate(run_together([plan_site(s) for s in sites(case, "normalized", links, C)])):
        np.testing.assert_array_equal(share.topologies[0].combination, C[[k]])


def test_every_exchange_expects_what_was_announced() -> None:
    case = make_case(order=2)
    seen: dict[int, list[Any]] = {k: [] for k in range(M)}
    planned = sites(case, "normalized", links_of(case))

    def note_for(k: int) -> Callable[[Outbox], None]:
        return lambda box: seen[k].append(box.expected)

    run_together([watched(plan_site(site), note_for(site.agent)) for site in planned])
    for site in planned:
        assert seen[site.agent] == [one.expected for one in list_planning_exchanges(site)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: replace(s, terms="other"), "agent 0 cannot train with agent 1, which has other settings or classes"),
        (lambda s: replace(s, combination_row=np.full(M, 0.25)), "which has another weight C"),
        (lambda s: replace(s, data=replace(s.data, weights=s.data.weights + 1)), "which has other edges between"),
        (lambda s: replace(s, data=replace(s.data, features=s.data.features[:, :4])), "4 features a vertex, and this"),
    ],
)
def test_neighbours_that_mean_another_run_are_named(change: Any, complaint: str) -> None:
    planned = sites(make_case(), "normalized", ~np.eye(M, dtype=bool))
    planned[1] = change(planned[1])
    with pytest.raises(GossamerError, match=complaint):
        run_together([plan_site(site) for site in planned])


def lying(site: Site, at: int, lie: Callable[[np.ndarray], None]) -> Any:
    """The plan of a site that changes what it sends in one exchange, counted from the last if negative."""
    index = at % len(list_planning_exchanges(site))

    def note(box: Outbox) -> None:
        if box.index == index:
            for vector in {id(message): message for message in box.messages.values()}.values():
                lie(join_parts(vector).numpy())

    return watched(plan_site(site), note)


def put(position: int | slice, value: float) -> Callable[[np.ndarray], None]:
    return lambda vector: vector.__setitem__(position, value)


TREE = -2  # the distance to the root, and who is whose parent
DISTANCES = TREE - (M - 1)
COUNTS = DISTANCES - (M - 1)  # the first round in which counts are sent: of agent 1 those at 2 and 3


@pytest.mark.parametrize(
    ("at", "lie", "complaint"),
    [
        (0, put(0, 1.5), "that it has 1.5 links among 4 agents"),
        (0, put(0, 0), "that it has 0 links among 4 agents"),
        (0, put(0, 1e9), r"that it has 1e\+09 links"),
        (1, put(0, 0), "a degree of 0 of a vertex with"),
        (1, put(0, 0.01), "a degree of 0.01 of a vertex with"),
        (2, put(0, 0.5), "a mark of 0.5, neither 0 nor 1"),
        (COUNTS - 1, put(slice(None), 0), "that a vertex lies in no receptive field, though one of agent 0 needs it"),
        (COUNTS, put(3, 1e12), r"that agent 1 has 10 vertices and 1e\+12 training examples"),
        (COUNTS, put(2, 1e12), r"that agent 1 has 1e\+12 vertices"),
        (COUNTS, put(2, 9.5), "that agent 1 has 9.5 vertices"),
        (COUNTS, put(2, 3), "that agent 1 has 3 vertices and 3 training examples, with . vertices at the border"),
        (
            COUNTS,
            put(3, 0),
            "1 has 10 vertices and 0 training examples, with . vertices at the border, [1-9]",
        ),
        (COUNTS, put(3, 10), "that agent 1 has 10 vertices and 10 training examples, with . vertices at the border"),
        (COUNTS, put(slice(2, 4), 0), "that agent 1 has 0 vertices"),
        (COUNTS, put(slice(6, 8), 20), "that agent 3 has 20 vertices and 20 training examples, before it can know"),
        (
            COUNTS + 1,
            put(slice(0, 2), 20),
            "agent 0 has 20 vertices and 20 training examples, where it has 4 and 1",
        ),
        (COUNTS + 1, put(6, 20), "that agent 3 has 20 vertices and 0 training examples, where agent 3 reports 7 and 0"),
        (DISTANCES, put(1, 1e308), r"that the agent farthest from agent 1 is 1e\+308 links away"),
        (DISTANCES, put(0, 1), "that the agent farthest from agent 0 is 1 links away"),
        (DISTANCES + 1, put(0, 2), "that the agent farthest from agent 0 is 2 links away"),
        (TREE, put(0, 7), "that it is 7 links from agent 0, from which agent . is [01]"),
    ],
)
def test_a_site_that_reports_what_cannot_be_is_named(at: int, lie: Any, complaint: str) -> None:
    """The receiver ends with an error before it passes anything on."""
    planned = sites(make_case(), "normalized", ~np.eye(M, dtype=bool))
    plans = [plan_site(site) if site.agent != 1 else lying(site, at, lie) for site in planned]
    with pytest.raises(GossamerError, match=f"agent 1 reports to agent . .*({complaint}).*which cannot be"):
        run_together(plans)


def test_counts_of_an_agent_far_away_must_be_the_same_on_every_path() -> None:
    """On a ring, agents 1 and 3 know of agent 2 by itself; agent 0 receives its counts from both."""
    case, ring = make_case(), abs(np.subtract.outer(np.arange(M), np.arange(M))) % 2 == 1
    k, z = case.owner[case.graph.edges].T
    planned = sites(replace(case, graph=case.graph.restrict_to((k == z) | ring[k, z])), "normalized", ring)
    plans = [plan_site(site) if site.agent != 1 else lying(site, COUNTS + 1, put(4, 20)) for site in planned]
    with pytest.raises(
        GossamerError, match=r"agent . reports to agent 0 that agent 2 has .*, where agent 1 reports 20"
    ):
        run_together(plans)


def test_time_steps_that_are_neither_used_nor_unused_are_refused() -> None:
    planned = sites(make_case(batch=4), "normalized", ~np.eye(M, dtype=bool))
    plans = [plan_site(site) if site.agent != 1 else lying(site, COUNTS, put(-1, 0.5)) for site in planned]
    with pytest.raises(GossamerError, match=r"agent 1 reports to agent . time steps that are neither used nor unused"):
        run_together(plans)
