"""Memberships of agents in a test's run, where nothing depends on addresses."""

from collections.abc import Iterable

from gossamer.peers.network.addresses import Contact
from gossamer.peers.shards.membership import Membership

NOWHERE = Contact("localhost:1", None)


def make_membership(agent: int, num_agents: int, neighbours: Iterable[int], run: str = "run") -> Membership:
    return Membership(agent, run, NOWHERE, dict.fromkeys(neighbours, NOWHERE), (None,) * num_agents)
