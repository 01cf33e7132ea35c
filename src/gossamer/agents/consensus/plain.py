"""Plain consensus: w_k = sum_z C_kz psi_z over agent k's neighbours (eq. (16))."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gossamer.agents.consensus.method import Advice, ConsensusKind, HostedCombination, Shape
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link, endpoints
from gossamer.agents.rules import StateDict
from gossamer.array_types import Ints
from gossamer.model import Params
from gossamer.model.sparse import Operator, make_operator

MIXED_AT_ONCE = 1 << 17  # numbers of all hosted agents that are mixed at once, where weights arrive: near a cache


@dataclass(frozen=True)
class PlainMethod:
    """Every number of the weights is sent as it is."""

    broadcasts = True
    exchanges = 1
    advice = Advice()

    def payload(self, shapes: Mapping[str, Shape], itemsize: int) -> int:
        return sum(map(math.prod, shapes.values())) * itemsize

    def make(self, C: HostedCombination, shapes: Mapping[str, Shape], dtype: torch.dtype, seed: int) -> "Mixing":
        return make_mixing(C, dtype)


@dataclass(frozen=True)
class Mixing:
    """The rows of C that belong to the hosted agents, and the links on which their weights travel."""

    inside: Tensor | Operator  # C between hosted agents [hosted, hosted]
    outside: Tensor  # C between hosted agents and neighbours on other hosts [hosted, vectors that arrive]
    outgoing: tuple[tuple[Link, tuple[int, ...]], ...]  # whose vectors a link carries, by position among the hosted
    incoming: tuple[tuple[Link, slice], ...]  # which columns of `outside` a link brings

    exchanges = 1

    def init(self, like: Params) -> StateDict:
        return {}

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        own = [part.flatten(1) for part in psi.values()]
        arrived = yield from self.exchange(own, index)
        for number, (name, part) in enumerate(zip(psi, own, strict=True)):
            self.apply(part, [(columns, pieces[number]) for columns, pieces in arrived], into[name].flatten(1))
        return into

    def exchange(
        self,
        own: Sequence[Tensor],
        index: int,
        dtype: torch.dtype | None = None,
        largest: Callable[[Tensor], float] | None = None,
    ) -> Generator[Outbox, Inbox, list[tuple[slice, list[Tensor]]]]:
        """Send neighbours on other hosts the hosted agents' rows [hosted, n] of some arrays; return theirs, by columns
        of `outside`.

        A message holds its agents' rows, one array after the other: of each array the rows [agents, numbers].
        """
        # Links with the same agents carry the same message, which a runtime encodes once.
        messages = {
            chosen: tuple(part[k] for part in own for k in chosen)
            for chosen in dict.fromkeys(chosen for _, chosen in self.outgoing)
        }
        sizes = [part.shape[1] for part in own]
        counts = {link: columns.stop - columns.start for link, columns in self.incoming}
        inbox = yield Outbox(
            Phase.CONSENSUS,
            index,
            {link: messages[chosen] for link, chosen in self.outgoing},
            {link: (count * sum(sizes),) for link, count in counts.items()},
            dtype,
            largest,
        )
        return [
            (columns, [piece.view(counts[link], -1) for piece in inbox[link].split([counts[link] * n for n in sizes])])
            for link, columns in self.incoming
        ]

    def apply(self, own: Tensor, arrived: Sequence[tuple[slice, Tensor]], out: Tensor) -> None:
        """C times the rows of one array: the hosted agents' and, by columns of `outside`, those of the others."""
        pieces = [(self.outside[:, columns], piece) for columns, piece in arrived]
        width = max(1, MIXED_AT_ONCE // len(own)) if pieces else own.shape[1]  # at once, while it is in the cache
        for begin in range(0, own.shape[1], width):
            there = slice(begin, begin + width)
            _multiply(self.inside, own[:, there], out[:, there])
            for weights, piece in pieces:
                if weights.numel() == 1:
                    out[:, there].add_(piece[:, there], alpha=float(weights))
                else:
                    out[:, there].addmm_(weights, piece[:, there])


def make_mixing(C: HostedCombination, dtype: torch.dtype) -> Mixing:
    """The mixing of a host's agents from their rows of C.

    With `hosting`, links join hosts, and a host is sent an agent's weights once, however many of its agents need them.
    """
    rows, agents = C.rows, C.agents
    here = np.asarray(agents, dtype=np.int64)
    endpoint = endpoints(C.hosting, rows.shape[1])
    elsewhere = np.ones(rows.shape[1], dtype=bool)
    elsewhere[here] = False
    k, z = np.nonzero(rows * elsewhere)  # hosted position, agent elsewhere; C is symmetric: each sends to the other
    # Incoming: a column for each agent elsewhere and host of ours that needs it, by link.
    pairs, column = np.unique(np.stack([endpoint[z], endpoint[here[k]], z]), axis=1, return_inverse=True)
    outside = np.zeros((len(here), pairs.shape[1]))
    outside[k, column] = rows[k, z]
    incoming = tuple(_links(pairs[0], pairs[1]))
    # Outgoing: a vector for each hosted agent and other host that needs it, by link and agent.
    pairs = np.unique(np.stack([endpoint[here[k]], endpoint[z], here[k]]), axis=1)
    order = np.argsort(here)
    position = order[np.searchsorted(here[order], pairs[2])]
    outgoing = tuple((link, tuple(position[chosen].tolist())) for link, chosen in _links(pairs[0], pairs[1]))
    inside = rows[:, here]
    sparse_enough = len(here) > 32 and np.count_nonzero(inside) < 0.1 * inside.size
    return Mixing(
        inside=make_operator(sparse.csr_array(inside), dtype) if sparse_enough else torch.tensor(inside, dtype=dtype),
        outside=torch.tensor(outside, dtype=dtype),
        outgoing=outgoing,
        incoming=incoming,
    )


def _links(senders: Ints, receivers: Ints) -> list[tuple[Link, slice]]:
    """The links of vectors that are sorted by sender and receiver, and where each link's lie."""
    changes = np.flatnonzero((np.diff(senders) != 0) | (np.diff(receivers) != 0)) + 1
    bounds = np.unique([0, *changes, len(senders)]).tolist()
    return [(Link(int(senders[a]), int(receivers[a])), slice(a, b)) for a, b in pairwise(bounds)]


def _multiply(matrix: Tensor | Operator, vectors: Tensor, out: Tensor) -> None:
    if isinstance(matrix, Operator):
        out.copy_(matrix @ vectors)
    else:
        torch.mm(matrix, vectors, out=out)


def _parse(words: list[str]) -> PlainMethod:
    if words:
        raise ValueError
    return PlainMethod()


PLAIN_CONSENSUS = ConsensusKind(_parse, lambda: ["none"])
