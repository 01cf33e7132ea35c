"""A site's shard restricted to the members of a membership, where agents have the numbers of their order.

Vertices of agents that are no members are gone with all their edges. The edges to a member that has joined are those
that it declares: its profile says how many there are, so that neighbours know the size of that message in advance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gossamer.array_types import Floats
from gossamer.data.site import SiteData
from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.z85 import KEY_LENGTH
from gossamer.peers.protocol.terms import Term
from gossamer.peers.shards.membership import Membership
from gossamer.peers.shards.sites import SiteShard

EDGE_NUMBERS = 3  # of a declared edge: the sender's vertex, the receiver's, and the weight
FindKey = Callable[[int], str | None]  # the verify key of an agent of membership 0


def restrict_shard(shard: SiteShard, term: Term, find_key: FindKey = lambda agent: None) -> SiteShard:
    """The shard of a member of a membership. Its row of C is that of membership 0 alone."""
    agent, own = shard.membership.agent, shard.membership
    neighbours = term.find_neighbours(agent, own.neighbours)
    membership = Membership(
        term.ids.index(agent),
        term.name,
        own.contact,
        {term.ids.index(z): find_contact(own, term, z) for z in neighbours},
        tuple(find_verify_keys(term, find_key)),
    )
    settings = shard.settings.model_copy(update={"agents": len(term.ids)})
    data = restrict_data(shard.data, agent, term, neighbours)
    return replace(
        shard, membership=membership, data=data, settings=settings, weights=None if term.number else shard.weights
    )


def find_contact(own: Membership, term: Term, agent: int) -> Contact:
    """The contact of a neighbour: that of its profile or, of an agent of membership 0, the one in the shard."""
    entry = term.find(agent)
    if entry is not None and entry.profile is not None:
        return Contact(entry.profile.address, entry.profile.key[:KEY_LENGTH] or None)
    if agent not in own.neighbours:
        raise GossamerError(
            f"the shard of agent {own.agent} no longer names its neighbour {agent}; put back the shard that the run "
            "began with, or move the folder of the run away and let the agent join anew"
        )
    return own.neighbours[agent]


def find_verify_keys(term: Term, find_key: FindKey) -> list[str | None]:
    """The verify keys of all members, by their numbers; None on a network that is trusted."""
    profiles = [(entry.agent, entry.profile) for entry in term.entries]
    return [(profile.key[KEY_LENGTH:] or None) if profile else find_key(agent) for agent, profile in profiles]


def restrict_data(data: SiteData, agent: int, term: Term, neighbours: Sequence[int]) -> SiteData:
    """The data of a site with the edges to its neighbours alone, and their numbers as owners."""
    kept = np.isin(data.owner, [agent, *neighbours])
    pairs = data.vertices[data.edges]
    inside = kept[data.edges].all(1)
    owner = {int(v): term.ids.index(int(k)) for v, k in zip(data.vertices[kept], data.owner[kept], strict=True)}
    own = data.vertices[data.owner == agent]
    return _build(data, own, term.ids.index(agent), owner, pairs[inside], data.weights[inside])


def list_declared_edges(data: SiteData, agent: int, other: int) -> Floats:
    """The edges between a site and another as the site declares them [edges, 3]; both by number in a membership."""
    between = (data.owner[data.edges] == other).any(1)
    edges = data.edges[between]
    first = data.owner[edges[:, 0]] == agent
    own, theirs = np.where(first, edges.T, edges.T[::-1])
    return np.stack([data.vertices[own], data.vertices[theirs], data.weights[between]], 1).astype(np.float64)


def add_declared_edges(data: SiteData, agent: int, other: int, declared: Floats) -> SiteData:
    """The data of a site with the edges that another site declares; those that it knows must have the same weights."""
    theirs, own, weights = declared[:, 0], declared[:, 1], declared[:, 2]
    mine = data.vertices[data.owner == agent]
    known = dict(zip(data.vertices.tolist(), data.owner.tolist(), strict=True))
    ends = declared[:, :2]
    wrong = not ((ends == np.floor(ends)) & (ends >= 0) & (ends < 2**53)).all() or not np.isin(own, mine).all()
    wrong = wrong or any(known.get(int(v), other) != other for v in theirs.tolist())
    if wrong or not (np.isfinite(weights) & (weights > 0)).all():
        raise GossamerError(
            f"agent {other} of this membership declares an edge that cannot be: expected edges from its own vertices "
            "to vertices of this site, with positive weights; see its site's data"
        )
    pairs = data.vertices[data.edges]
    new = np.sort(declared[:, :2].astype(np.int64), axis=1)
    seen, added = dict(zip(map(tuple, pairs.tolist()), data.weights.tolist(), strict=True)), list[int]()
    for i, (pair, weight) in enumerate(zip(map(tuple, new.tolist()), weights.tolist(), strict=True)):
        if seen.get(pair, weight) != weight:
            raise GossamerError(
                f"agent {other} of this membership gives edge {pair} the weight {weight:g}, and this site "
                f"{seen[pair]:g}; both must have it alike"
            )
        if pair not in seen:
            seen[pair] = weight
            added.append(i)
    owner = known | {int(v): other for v in theirs[added].tolist()}
    return _build(
        data,
        mine,
        agent,
        owner,
        np.concatenate([pairs, new[added]]),
        np.concatenate([data.weights, weights[added]]),
    )


def _build(
    data: SiteData,
    own: NDArray[np.int64],
    agent: int,
    owner: Mapping[int, int],
    pairs: NDArray[np.int64],
    weights: Floats,
) -> SiteData:
    """The data of a site with other edges, given by pairs of vertices' numbers; `owner` has those of all vertices."""
    vertices = np.union1d(own, pairs.reshape(-1))
    edges = np.sort(np.searchsorted(vertices, pairs), axis=1).reshape(-1, 2)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    owners = np.array([owner.get(int(v), agent) for v in vertices], dtype=np.int64)
    return replace(data, vertices=vertices, owner=owners, edges=edges[order], weights=weights[order])
