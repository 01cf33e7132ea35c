"""Signed lists of the agents that send to each agent in consensus, flooded between sites that plan to mask it.

An agent pads its message to k for every other sender of k, so it must know who these are, and must not believe k
alone: with an accomplice k could leave out all the others, whose pads would then be missing. Every agent signs whom it
mixes with, and the lists of all m agents spread like the counts of planning (agents/planning.py). Mixing is mutual, so
that a list which leaves out an honest sender contradicts the list that this sender has signed.
"""

from collections.abc import Generator, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents.consensus.masked import LEAST_SENDERS
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link
from gossamer.array_types import Ints
from gossamer.errors import GossamerError
from gossamer.peers.protocol.exchanges import ExpectedMessages
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.wire import digest_run
from gossamer.peers.shards.membership import Membership


class SenderLists:
    """Lists of all agents as far as they are known here: rows [m, bytes], a bit for each sender and the signature.

    A row of zeros is a list that has not arrived.
    """

    def __init__(self, membership: Membership, signatures: Signatures, senders: tuple[int, ...]) -> None:
        """`senders` are those of this agent."""
        m, agent = membership.num_agents, membership.agent
        self._membership, self._signatures = membership, signatures
        bits = np.zeros(m, dtype=bool)
        bits[list(senders)] = True
        body = np.packbits(bits).tobytes()
        self._length = len(body)
        self.rows = np.zeros((m, list_width(m, signatures)), dtype=np.uint8)
        self.rows[agent] = np.frombuffer(body + signatures.sign(self._bind(agent, body)), dtype=np.uint8)

    def merge(self, neighbour: int, received: NDArray[np.uint8]) -> None:
        """Take the lists that are new from a neighbour's rows. Refuse one that its agent has not signed, and two of one
        agent."""
        for k in np.flatnonzero(received.any(1) & (received != self.rows).any(1)).tolist():
            body, signature = received[k, : self._length].tobytes(), received[k, self._length :].tobytes()
            if not self._signatures.verifies(k, self._bind(k, body), signature):
                raise GossamerError(
                    f"agent {neighbour} has passed on to agent {self._membership.agent} a list of agent {k}'s "
                    f"neighbours that agent {k} has not signed; find out what agent {neighbour} runs"
                )
            if self.rows[k].any():
                raise GossamerError(
                    f"agent {k} has signed two lists of its neighbours in one run; find out what it runs, and give the "
                    "run another name at every site"
                )
            self.rows[k] = received[k]

    def pair_senders(self) -> Ints:
        """Pairs (k, z) [n, 2] as `list_senders` of masked consensus has them, from the lists of all agents."""
        m, agent = len(self.rows), self._membership.agent
        missing = np.flatnonzero(~self.rows.any(1))
        if len(missing):
            raise GossamerError(f"agent {agent} has got no list of agent {missing[0]}'s neighbours; start all again")
        mixes = np.unpackbits(self.rows[:, : self._length], axis=1)[:, :m].astype(bool)
        for k, z in zip(*np.nonzero(mixes & ~mixes.T), strict=True):
            raise GossamerError(
                f"agent {k} has signed that it mixes with agent {z}, and agent {z} that it does not mix with agent "
                f"{k}; see which of their site files is wrong, or who lies"
            )
        for k in np.flatnonzero(mixes[agent]):
            if mixes[k].sum() < LEAST_SENDERS:
                raise GossamerError(
                    f"agent {k} mixes with agent {agent} alone, which a sum cannot hide; give it a link"
                )
        return np.argwhere(mixes & mixes[agent][:, None]).astype(np.int64)

    def _bind(self, agent: int, body: bytes) -> bytes:
        """The bytes that are signed."""
        return b"gossamer senders" + digest_run(self._membership.run) + agent.to_bytes(4, "little") + body


def list_width(num_agents: int, signatures: Signatures) -> int:
    """Bytes of one agent's signed list."""
    return -(-num_agents // 8) + signatures.size


def flood_lists(lists: SenderLists, membership: Membership, index: int, rounds: int) -> Generator[Outbox, Inbox, Ints]:
    """Exchange lists with the neighbours until those of all agents are here, `rounds` links away at most; return the
    pairs (receiver, sender). `index` is that of the first exchange."""
    agent = membership.agent
    for number in range(rounds):
        message: Tensor = torch.from_numpy(lists.rows.copy())
        inbox = yield Outbox(
            Phase.PLANNING,
            index + number,
            {Link(agent, z): message for z in membership.neighbours},
            {Link(z, agent): tuple(message.shape) for z in membership.neighbours},
            torch.uint8,
        )
        for link, received in inbox.items():
            lists.merge(link.sender, received.numpy())
    return lists.pair_senders()


def expect_lists(lists: SenderLists, membership: Membership, index: int, rounds: int) -> Iterator[ExpectedMessages]:
    """The messages of `flood_lists`."""
    shapes = dict.fromkeys(membership.neighbours, lists.rows.shape)
    for number in range(rounds):
        yield ExpectedMessages("site", str(Phase.PLANNING), index + number, torch.uint8, shapes)
