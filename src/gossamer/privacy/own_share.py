"""An audit from one agent's share alone: its own data, its plan and its row of C, and no truth about others.

The share is seen as a deployment over the vertices that the agent knows. Features and targets of its neighbours'
vertices are empty, and nothing is compared with them; so are all rows of C but its own.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from gossamer.agents.relays import join_routes
from gossamer.agents.share import Share
from gossamer.data import DataGraph
from gossamer.privacy.audit import Audit
from gossamer.privacy.knowledge import Knowledge, find_knowledge
from gossamer.privacy.seen_rows import Fields
from gossamer.runs.deployment import DeployedTopology, Deployment
from gossamer.runs.initial_weights import InitialWeights
from gossamer.runs.settings import Settings
from gossamer.runs.stages import build_network
from gossamer.topology import certify


def deploy_share(share: Share, settings: Settings) -> tuple[Deployment, tuple[Fields, Fields]]:
    """The deployment of a share of one agent, with vertices by their position in it, and its receptive fields."""
    (agent,) = share.agents
    n, m = len(share.vertices), share.num_agents
    graph = DataGraph(
        "share",
        np.empty((0, 2), dtype=np.int64),
        np.empty(0),
        _spread_features(share),
        _spread(share.targets, share, -1 if share.task == "multiclass" else 0),
        _spread(share.masks["train"], share, False),
        _spread(share.masks["validation"], share, False),
        _spread(share.masks["test"], share, False),
        share.num_classes,
    )
    topologies, routes = [], join_routes([share.routes])
    for one in share.topologies:
        i, j, values = one.entries
        C = np.zeros((m, m))
        C[agent] = one.combination[0]
        links = np.zeros((m, m), dtype=bool)
        links[agent, C[agent] != 0] = True
        links[agent, share.owner] = True
        links[agent, agent] = False
        if share.routes is not None:
            links[agent, list(share.routes.far)] = False
        links |= links.T
        shift = sparse.csr_array((values, (i, j)), shape=(n, n))
        shared = np.zeros((m, m), dtype=np.int64)
        topologies.append(DeployedTopology(certify(C, links, links), graph, shift, shared, 1.0, routes=routes))
    initial = None if share.initial is None else InitialWeights(share.initial, share.transform)
    network = build_network(graph.num_features, graph.num_outputs, settings)
    fields = share.topologies[0].full_fields, share.topologies[0].train_fields
    return Deployment(share.owner, network, tuple(topologies), initial, share.transform), fields


def know_own_row(settings: Settings) -> Knowledge:
    """Knowledge of an agent that has its own row of C alone: weights of others are near its own after step 0."""
    return replace(find_knowledge(settings), combination_known=False)


def number_vertices(audit: Audit, share: Share) -> Audit:
    """The same audit with the vertices' global numbers in place of their positions in the share."""
    names = share.vertices
    for n, one in enumerate(audit.neighbours):
        audit.neighbours[n] = replace(one, ranks=replace(one.ranks, vertices=names[one.ranks.vertices]))
    features, labels = audit.feature_attack, audit.label_attack
    if features is not None:
        found = tuple(replace(one, vertex=int(names[one.vertex])) for one in features.reconstructions)
        audit.feature_attack = replace(features, reconstructions=found)
    if labels is not None:
        senders = {z: replace(one, vertices=names[one.vertices]) for z, one in labels.senders.items()}
        audit.label_attack = replace(labels, senders=senders)
    return audit


def _spread(own: Any, share: Share, empty: Any) -> Any:
    """Rows of the agent's own vertices among those of all vertices that it knows."""
    rows = np.full((len(share.vertices), *own.shape[1:]), empty, dtype=own.dtype)
    rows[share.hosted] = own
    return rows


def _spread_features(share: Share) -> Any:
    if not sparse.issparse(share.features):
        return _spread(share.features, share, 0)
    place = sparse.csr_array(
        (np.ones(int(share.hosted.sum())), (np.flatnonzero(share.hosted), np.arange(int(share.hosted.sum())))),
        shape=(len(share.vertices), int(share.hosted.sum())),
    )
    return sparse.csr_array(place @ share.features)
