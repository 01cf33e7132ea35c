"""Signed lists of senders: all sites come to those of C, and a site that lies in them is refused by its neighbours."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import torch
from peers.memberships import make_membership
from peers.network import SECRETS

from gossamer import topology
from gossamer.agents import Link
from gossamer.agents.consensus.masked import find_senders, list_senders
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError
from gossamer.generators import drive
from gossamer.peers.protocol.signatures import Keyring, derive_verify_key, make_keyring
from gossamer.peers.sender_lists import SenderLists, expect_lists, flood_lists
from gossamer.peers.shards.shard import diameter

KEYS = [*SECRETS, "4".rjust(40, "0"), "5".rjust(40, "0")]
M = len(KEYS)
RING = topology.metropolis_weights(topology.ring(M))


def keyring(agent: int) -> Keyring:
    return make_keyring(KEYS[agent], [derive_verify_key(secret) for secret in KEYS], agent)


def make_lists(C: np.ndarray, k: int, run: str = "run", senders: tuple[int, ...] | None = None) -> SenderLists:
    own = find_senders(C[k], k) if senders is None else senders
    return SenderLists(make_membership(k, M, find_senders(C[k], k), run), keyring(k), own)


def flood(C: np.ndarray, lists: list[SenderLists]) -> list[np.ndarray]:
    rounds = diameter(C != 0)
    return run_together(
        [flood_lists(one, make_membership(k, M, find_senders(C[k], k)), 9, rounds) for k, one in enumerate(lists)]
    )


@pytest.mark.parametrize("name", ["ring", "complete", "exponential", "grid"])
def test_all_sites_come_to_the_senders_of_c(name: str) -> None:
    C = topology.metropolis_weights(getattr(topology, name)(M))
    for k, pairs in enumerate(flood(C, [make_lists(C, k) for k in range(M)])):
        np.testing.assert_array_equal(pairs, list_senders(C, k))


def test_messages_are_those_expected() -> None:
    lists, own = make_lists(RING, 0), make_membership(0, M, (1, 5))
    expected = list(expect_lists(lists, own, 9, 3))
    outboxes: list[Any] = []

    def receive(outbox: Any) -> dict[Link, torch.Tensor]:
        outboxes.append(outbox)
        return {link: torch.zeros(shape, dtype=outbox.dtype) for link, shape in outbox.expected.items()}

    def until_the_end() -> Generator[Any, Any, None]:
        with pytest.raises(GossamerError, match="agent 0 has got no list of agent 1's neighbours"):
            yield from flood_lists(lists, own, 9, 3)

    drive(until_the_end(), receive)
    for outbox, planned in zip(outboxes, expected, strict=True):
        shapes = {link.sender: shape for link, shape in outbox.expected.items()}
        found = ("site", str(outbox.phase), outbox.index, outbox.dtype, shapes)
        assert found == (planned.plan, planned.phase, planned.index, planned.dtype, planned.shapes)


def test_a_receiver_cannot_leave_out_an_honest_sender() -> None:
    """Agent 1, with agent 0 as accomplice, tells agent 2 that only the two send to it; its other senders have signed
    that they do too."""
    C = topology.metropolis_weights(topology.complete(M))
    lists = [make_lists(C, k, senders=(0, 2) if k == 1 else None) for k in range(M)]
    with pytest.raises(GossamerError, match="agent 3 has signed that it mixes with agent 1, and agent 1 that"):
        flood(C, lists)


def test_a_receiver_cannot_speak_for_another() -> None:
    """Agent 1 makes up the list of agent 3, signed with its own key."""
    liar = make_lists(RING, 1)
    forged = SenderLists(make_membership(3, M, ()), keyring(1), (1, 2))
    liar.rows[3] = forged.rows[3]
    with pytest.raises(GossamerError, match="agent 1 has passed on to agent 0 a list of agent 3's neighb"):
        make_lists(RING, 0).merge(1, liar.rows)


def test_a_list_of_another_run_or_agent_is_refused() -> None:
    own = make_lists(RING, 0)
    with pytest.raises(GossamerError, match="that agent 1 has not signed"):
        own.merge(1, make_lists(RING, 1, run="last week").rows)
    moved = make_lists(RING, 1).rows
    moved[2] = moved[1]
    with pytest.raises(GossamerError, match="agent 2 has not signed"):
        own.merge(1, moved)


def test_two_lists_of_one_agent_are_noticed() -> None:
    own = make_lists(RING, 0)
    own.merge(1, make_lists(RING, 1).rows)
    own.merge(5, make_lists(RING, 1).rows)  # the same again
    with pytest.raises(GossamerError, match="agent 1 has signed two lists of its neighbours in one run"):
        own.merge(5, make_lists(RING, 1, senders=(0, 3)).rows)


def test_a_neighbour_with_one_sender_is_refused() -> None:
    line = topology.metropolis_weights(topology.line(M))
    with pytest.raises(GossamerError, match="agent 0 mixes with agent 1 alone, which a sum cannot hide"):
        flood(line, [make_lists(line, k) for k in range(M)])
