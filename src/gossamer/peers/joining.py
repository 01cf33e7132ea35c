"""Exchanges with agents that have joined, before all plan: the edges that they declare, and weights to begin with.

Exchanges like those of planning (agents/planning.py), each a generator without I/O:
    edges      every agent that has joined sends each neighbour that its profile names the edges to it
    weights    one that cannot restore the step that its membership begins from takes over the weights of its first
               neighbour that has some; as many rounds as there are such agents, since they may be neighbours
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link
from gossamer.errors import GossamerError
from gossamer.model import Params
from gossamer.peers.protocol.terms import Term
from gossamer.peers.shards.restriction import EDGE_NUMBERS, add_declared_edges, list_declared_edges
from gossamer.peers.shards.sites import SiteShard

Shapes = Mapping[str, tuple[int, ...]]  # of one agent's weights, by name


def count_declared(term: Term, sender: int, receiver: int) -> int:
    """Number of edges that a member declares to another; both by number."""
    profile = term.entries[sender].profile
    return 0 if profile is None else profile.links.get(term.ids[receiver], 0)


def expect_edges(shard: SiteShard, term: Term) -> dict[Link, tuple[int, ...]]:
    """Shapes of the edges that an agent's neighbours declare to it."""
    own = shard.membership
    counts = {z: count_declared(term, z, own.agent) for z in own.neighbours}
    return {Link(z, own.agent): (count, EDGE_NUMBERS) for z, count in counts.items() if count}


def exchange_edges(shard: SiteShard, term: Term, index: int) -> Generator[Outbox, Inbox, SiteShard]:
    """Declare edges to neighbours, and add those that they declare to a restricted shard's data."""
    own, data = shard.membership, shard.data
    messages: dict[Link, Tensor] = {}
    for z in own.neighbours:
        count = count_declared(term, own.agent, z)
        edges = list_declared_edges(data, own.agent, z)
        if count and len(edges) != count:
            raise GossamerError(
                f"agent {term.ids[own.agent]} joined with {count} edges to agent {term.ids[z]}, and its shard has "
                f"{len(edges)}; make its shard again and let it join anew"
            )
        if count:
            messages[Link(own.agent, z)] = torch.from_numpy(edges)
    expected = expect_edges(shard, term)
    inbox = yield Outbox(Phase.PLANNING, index, messages, expected, torch.float64)
    for link in expected:
        data = add_declared_edges(data, own.agent, link.sender, inbox[link].numpy())
    return replace(shard, data=data)


def expect_weights(shard: SiteShard, adopters: Sequence[int], size: int) -> dict[Link, tuple[int, ...]]:
    """Shapes of the weights that an agent is sent in a round: a mark whether there are any, and these."""
    own = shard.membership
    return {Link(z, own.agent): (1 + size,) for z in own.neighbours} if own.agent in adopters else {}


def adopt_weights(
    shard: SiteShard, params: Params | None, shapes: Shapes, adopters: Sequence[int], index: int
) -> Generator[Outbox, Inbox, Params]:
    """Weights to begin with: the agent's own, those of a neighbour if it is among the `adopters`."""
    own = shard.membership
    size = sum(torch.Size(shape).numel() for shape in shapes.values())
    expected = expect_weights(shard, adopters, size)
    for round_ in range(len(adopters)):
        vector = torch.zeros(1 + size, dtype=torch.float64)
        if params is not None:
            vector[0] = 1.0
            vector[1:] = torch.cat([params[name].reshape(-1) for name in shapes])
        messages = {Link(own.agent, z): vector for z in own.neighbours if z in adopters}
        inbox = yield Outbox(Phase.PLANNING, index + round_, messages, expected, torch.float64)
        found = [inbox[link][1:] for link in sorted(expected) if inbox[link][0] == 1.0]
        if params is None and found:
            params = _split(found[0], shapes, shard.settings.torch_dtype)
    if params is None:
        raise GossamerError(f"no neighbour of agent {own.agent} has weights to begin with")
    return params


def _split(vector: Tensor, shapes: Shapes, dtype: torch.dtype) -> Params:
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    parts = vector.split(sizes)
    return {name: part.reshape(1, *shape).to(dtype) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
