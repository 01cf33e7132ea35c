"""Masked consensus: an agent learns its mixture w_k = sum_z C_kz psi_z (eq. (16)) and no single neighbour's weights.

Pairwise masks of Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning",
without their handling of dropouts: where an agent dies, all go back and draw new pads. Agent z sends k the integers

    round(2^40 C_kz psi_z) + sum_{z'} s_zz' pad_zz'      modulo 2^64

over the other senders z' of k. Both z and z' draw the same pad_zz', s_zz' is 1 at the one with the smaller number and
-1 at the other, so that the pads cancel in k's sum over z, exactly. A message alone is uniformly distributed for who
lacks its pads. Where hosts trust each other, in a simulation and on the ranks of a job, there are no pads: the integers
are the same, and so are the sums, bit for bit. Between hosts, what goes to one receiver is one sum.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.consensus.method import Advice, HostedCombination, Shape
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link, endpoints, group_by_link
from gossamer.agents.rules import StateDict
from gossamer.array_types import Floats, Ints
from gossamer.errors import DivergedError, GossamerError
from gossamer.model import Params

SCALE = 2.0**40  # integers in a unit: rounding errs by at most 2^-41
LARGEST = 2.0**22  # magnitude that an agent may send
MOST_WEIGHT = 2.0  # sum_{z != k} |C_kz| below which sums of such numbers stay within 64 bits
LEAST_SENDERS = 2  # of an agent: the sum of one hides nothing
ENCODED_BLOCK = 1 << 16  # numbers of all messages that are encoded at once, which stay in the cache

# Sum of the signed pads that a sender adds to its message to a receiver, int64 [size]: of the sender, the receiver, the
# step, the number of the exchange within it, and the size
Pads = Callable[[int, int, int, int, int], Tensor]


@dataclass(frozen=True)
class MaskedMethod:
    """Every number of the weights is sent as 64 bits that mean nothing alone."""

    pairwise = False  # between hosts, one sum for each receiver
    exchanges = 1
    advice = Advice()

    def payload_bytes(self, shapes: Mapping[str, Shape], itemsize: int) -> int:
        return sum(map(math.prod, shapes.values())) * torch.int64.itemsize

    def make(
        self, C: HostedCombination, shapes: Mapping[str, Shape], dtype: torch.dtype, seed: int
    ) -> "MaskedConsensus":
        check_senders(C.rows, C.agents)
        return make_masked(C)


@dataclass(frozen=True)
class MaskedConsensus:
    """Messages of the hosted agents. Targets of messages are the hosted agents, then the remote sums: one for each
    receiver on another endpoint, by the link that carries it."""

    own_weight: Tensor  # C_kk [hosted]
    pairs: tuple[tuple[int, int], ...]  # hosted sender z and receiver k of each message
    position: Tensor  # of each pair's sender among the hosted agents
    target: Tensor  # of each pair
    weight: Tensor  # 2^40 C_kz of each pair
    outgoing: tuple[tuple[Link, slice], ...]  # rows of the remote sums that a link carries
    incoming: tuple[tuple[Link, tuple[int, ...]], ...]  # positions of the hosted receivers of a link's sums
    bound: Tensor  # largest magnitude of each hosted agent's sum [hosted]
    senders: tuple[tuple[int, ...], ...]  # of each hosted agent
    pads: Pads | None = None  # None: hosts trust each other

    exchanges = 1

    def init(self, like: Params) -> StateDict:
        return {}

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        own = torch.cat([part.flatten(1) for part in psi.values()], dim=1)
        sums = self.encode(own, index, step)
        hosted, size = own.shape
        inbox = yield Outbox(
            Phase.CONSENSUS,
            index,
            {link: sums[hosted:][rows] for link, rows in self.outgoing},
            {link: (len(positions), size) for link, positions in self.incoming},
            torch.int64,
        )
        for link, positions in self.incoming:
            for k, arrived in zip(positions, inbox[link], strict=True):
                sums[k] += arrived
        mixed = self.decode(sums[:hosted]).addcmul_(own.double(), self.own_weight[:, None])
        sizes = [part[0].numel() for part in psi.values()]
        for name, piece in zip(psi, mixed.split(sizes, dim=1), strict=True):
            into[name].copy_(piece.view_as(into[name]))
        return into

    def encode(self, own: Tensor, index: int, step: int) -> Tensor:
        """Sums of the hosted agents' messages for every target, modulo 2^64 (int64 [targets, n])."""
        if not bool((own.abs() <= LARGEST).all()):  # also where a number is none
            raise DivergedError(f"numbers beyond {LARGEST:.0f} in a masked consensus")
        size = own.shape[1]
        sums = torch.zeros(len(own) + sum(rows.stop - rows.start for _, rows in self.outgoing), size, dtype=torch.int64)
        width = max(1, ENCODED_BLOCK // max(1, len(self.pairs)))
        for begin in range(0, size, width):
            block = slice(begin, begin + width)
            values = own[:, block].double().index_select(0, self.position).mul_(self.weight[:, None])
            sums[:, block].index_add_(0, self.target, values.round_().long())
        if self.pads is not None:
            for (z, k), target in zip(self.pairs, self.target.tolist(), strict=True):
                sums[target] += self.pads(z, k, step, index, size)
        return sums

    def decode(self, sums: Tensor) -> Tensor:
        """The hosted agents' sums as real numbers; refuse those that no honest neighbours' messages add up to."""
        decoded = sums.double().div_(SCALE)
        found = decoded.abs().amax(dim=1)
        wrong = torch.nonzero(found > self.bound)
        if len(wrong):
            k = int(wrong[0])
            *others, last = map(str, self.senders[k])
            raise DivergedError(
                f"a masked sum of {float(found[k]):.1e}, which the numbers of agents {', '.join(others)} and {last} "
                "cannot have (one of them lies, or has other pads)"
            )
        return decoded


def check_senders(rows: Floats, agents: Sequence[int]) -> None:
    """Require at least two neighbours of every agent whose row of C is given, and sums that fit 64 bits."""
    for row, k in zip(rows, agents, strict=True):
        senders = find_senders(row, k)
        if len(senders) < LEAST_SENDERS:
            found = f"only agent {senders[0]}" if senders else "no agent"
            raise GossamerError(
                f"masked consensus hides each neighbour's weights in a sum of at least {LEAST_SENDERS}, and agent {k} "
                f"mixes with {found}; give it another link, as --topology ring or complete has, or take "
                "--consensus plain and no --encoder"
            )
        total = float(np.abs(row[list(senders)]).sum())
        if total >= MOST_WEIGHT:
            raise GossamerError(
                f"masked consensus adds 64-bit integers, and the weights of agent {k}'s neighbours in C have a "
                f"sum of magnitudes of {total:.3g}, expected below {MOST_WEIGHT:g}; take --nonnegative"
            )


def find_senders(row: Floats, agent: int) -> tuple[int, ...]:
    """The other agents with a weight in an agent's row of C, ascending."""
    return tuple(z for z in np.flatnonzero(row).tolist() if z != agent)


def list_senders(C: Floats, agent: int) -> Ints:
    """Pairs (k, z) [n, 2]: the neighbours k of an agent, and every agent z that sends to k; by k, then z."""
    return np.array([(k, z) for k in find_senders(C[agent], agent) for z in find_senders(C[k], k)], dtype=np.int64)


def make_masked(C: HostedCombination) -> MaskedConsensus:
    """Set up the messages of a host's agents from their rows of C, whose nonzero entries are symmetric."""
    here = np.asarray(C.agents, dtype=np.int64)
    endpoint = endpoints(C.hosting, C.rows.shape[1])
    links = C.rows != 0
    links[np.arange(len(here)), here] = False
    position, k = np.nonzero(links)
    z = here[position]
    order = np.argsort(here)
    is_hosted = np.isin(k, here)
    target = np.where(is_hosted, order[np.searchsorted(here[order], np.where(is_hosted, k, here[0]))], 0)
    # A remote sum is a column (sender's endpoint, receiver's endpoint, receiver).
    away = ~is_hosted
    sent, number = np.unique(np.stack([endpoint[z], endpoint[k], k])[:, away], axis=1, return_inverse=True)
    target[away] = len(here) + number
    received = np.unique(np.stack([endpoint[k], endpoint[z], z])[:, away], axis=1)
    receivers = order[np.searchsorted(here[order], received[2])]
    weights = np.where(links, C.rows, 0.0)
    senders = tuple(find_senders(row, agent) for row, agent in zip(C.rows, C.agents, strict=True))
    rounding = np.array([len(one) for one in senders]) / SCALE
    return MaskedConsensus(
        own_weight=torch.from_numpy(C.rows[np.arange(len(here)), here].astype(np.float64)),
        pairs=tuple(zip(z.tolist(), k.tolist(), strict=True)),
        position=torch.from_numpy(position),
        target=torch.from_numpy(target),
        weight=torch.from_numpy(C.rows[position, k] * SCALE),
        outgoing=tuple(group_by_link(sent[0], sent[1])),
        incoming=tuple(
            (link, tuple(receivers[rows].tolist())) for link, rows in group_by_link(received[0], received[1])
        ),
        bound=torch.from_numpy(LARGEST * np.abs(weights).sum(1) * (1 + 1e-12) + rounding),
        senders=senders,
    )
