"""Membership of one agent in a run: its number, contact and neighbours, and the verify keys of all agents.

It is the part of shard.json that shards cut from a deployment and shards of sites have in common.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.errors import GossamerError, shown
from gossamer.peers.network.addresses import Contact, check_distinct
from gossamer.peers.shards.manifests import MemberManifest
from gossamer.runs.shares import REMEDY

MAX_AGENT = 1 << 31  # of agents that may join
AGENT_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True)
class Membership:
    """One agent as a member of a run."""

    agent: int
    run: str  # the same for all agents of a run, and for no other run
    contact: Contact  # of this agent
    neighbours: Mapping[int, Contact]
    verify_keys: tuple[str | None, ...]  # of all agents (Z85); None where a key is unknown, on a trusted network

    @property
    def num_agents(self) -> int:
        return len(self.verify_keys)


def membership_fields(membership: Membership) -> dict[str, object]:
    """The keys of shard.json that hold a membership, with their values."""
    return {
        "agent": membership.agent,
        "run": membership.run,
        "contact": _contact_fields(membership.contact),
        "neighbours": {str(z): _contact_fields(contact) for z, contact in membership.neighbours.items()},
        "members": list(membership.verify_keys),
    }


def read_membership(manifest: MemberManifest, num_agents: int, path: str, changes: bool = False) -> Membership:
    """The membership in a manifest, checked against the number of agents in its settings; where a run's agents may
    change, others have higher numbers."""
    m, agent = num_agents, manifest.agent
    most = MAX_AGENT if changes else m
    if agent >= most:
        raise GossamerError(f"{path}: agent should be 0 to {m - 1}, as settings.agents is {m}; found {agent}; {REMEDY}")
    neighbours: dict[int, Contact] = {}
    for name, stored in manifest.neighbours.items():
        number = int(name) if AGENT_NUMBER.fullmatch(name) else most
        if number >= most or number == agent:
            raise GossamerError(
                f"{path}: neighbours should be numbered 0 to {most - 1} without {agent}, found {shown(name)}; {REMEDY}"
            )
        neighbours[number] = stored.contact()
    if not neighbours and m > 1:
        raise GossamerError(f"{path}: neighbours should name at least one agent, found none; {REMEDY}")
    contact = manifest.contact.contact()
    check_distinct([contact, *neighbours.values()], path)
    if len(manifest.members) != m:
        raise GossamerError(f"{path}: members should have {m} verify keys, found {len(manifest.members)}; {REMEDY}")
    return Membership(agent, manifest.run, contact, neighbours, tuple(manifest.members))


def _contact_fields(contact: Contact) -> dict[str, object]:
    return {"address": contact.address, "key": contact.key}
