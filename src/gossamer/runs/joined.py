"""A deployment joined from the shares of all its agents, where their folders are at hand in one place."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from gossamer.agents.relays import join_routes
from gossamer.agents.share import MASKS, Share
from gossamer.array_types import Floats, Ints
from gossamer.assignment import shared_edges
from gossamer.data import DataGraph
from gossamer.runs.deployment import DeployedTopology, Deployment
from gossamer.runs.initial_weights import InitialWeights
from gossamer.runs.settings import Settings
from gossamer.runs.stages import build_network, find_input_width
from gossamer.topology import carried_edges, certify, needed_links


def join_shares(
    shares: Sequence[Share],
    settings: Settings,
    name: str,
    class_names: list[str] | None,
    names: Sequence[Sequence[str]] | None = None,
) -> Deployment:
    """The deployment of which these are all shares, one an agent in their order.

    Vertices are in the order of their global numbers, which are their names unless each agent's vertices have `names`.
    Data edges are the nonzero entries of D: their weights are not known, nor are those that were dropped.
    """
    own = [share.vertices[share.hosted] for share in shares]
    numbers = np.concatenate(own)
    order = np.argsort(numbers)
    vertices = numbers[order]
    owner = np.repeat(np.arange(len(shares)), [len(part) for part in own])[order]
    first, joined = shares[0], [one for part in names or () for one in part]
    weights = [share.example_weights for share in shares if share.example_weights is not None]
    data: dict[str, Any] = {
        "name": name,
        "features": _stack([share.features for share in shares])[order],
        "targets": np.concatenate([share.targets for share in shares])[order],
        **{mask: np.concatenate([share.masks[mask] for share in shares])[order] for mask in MASKS},
        "num_classes": first.num_classes,
        "names": tuple(np.array(joined, dtype=object)[order]) if joined else tuple(map(str, vertices.tolist())),
        "class_names": None if class_names is None else tuple(class_names),
        "sample_weights": np.concatenate(weights)[order] if weights else None,
    }
    topologies, routes = [], join_routes(share.routes for share in shares)
    for number in range(len(first.topologies)):
        shift, C = _join_topology(shares, number, vertices)
        above = sparse.triu(abs(shift) + abs(shift).T, k=1).tocoo()
        edges = np.stack([above.row, above.col], axis=1).astype(np.int64)
        edges = edges[np.lexsort(edges.T[::-1])]
        graph = DataGraph(edges=edges, weights=np.ones(len(edges)), **data)
        shared = shared_edges(graph, owner, len(shares))
        links = ((C != 0) | (shared > 0)) & ~np.eye(len(C), dtype=bool)
        for k, z in routes.paths:
            links[k, z] = links[z, k] = False
        relayed = 1.0 - float(carried_edges(edges, owner, links).mean()) if len(edges) else 0.0
        certificate = certify(C, links, needed_links(shared))
        topologies.append(DeployedTopology(certificate, graph, shift, shared, 1.0, relayed, routes))
    graph = topologies[0].graph
    width = find_input_width(graph.num_features, graph.num_outputs, settings)
    network = build_network(width, graph.num_outputs, settings)
    initial = None if first.initial is None else InitialWeights(first.initial, first.transform)
    return Deployment(owner, network, tuple(topologies), initial, first.transform)


def _join_topology(shares: Sequence[Share], number: int, vertices: Ints) -> tuple[Any, Floats]:
    """D [n, n] from the rows of each agent's own vertices, and C [m, m] from its row."""
    rows, columns, values = [], [], []
    for share in shares:
        i, j, entries = share.topologies[number].entries
        here = share.hosted[i]
        rows.append(np.searchsorted(vertices, share.vertices[i[here]]))
        columns.append(np.searchsorted(vertices, share.vertices[j[here]]))
        values.append(entries[here])
    places = np.concatenate(rows), np.concatenate(columns)
    shift = sparse.csr_array((np.concatenate(values), places), shape=(len(vertices), len(vertices)))
    return shift, np.concatenate([share.topologies[number].combination for share in shares])


def _stack(features: Sequence[Any]) -> Any:
    if sparse.issparse(features[0]):
        return sparse.csr_array(sparse.vstack(features))
    return np.concatenate(features)
