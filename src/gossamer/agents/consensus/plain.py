"""Plain consensus: w_k = sum_z C_kz psi_z over agent k's neighbours (eq. (16))."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gossamer.agents.consensus.method import Advice, ConsensusKind, HostedCombination, Shape
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link, endpoints, group_by_link
from gossamer.agents.rules import StateDict
from gossamer.array_types import Floats
from gossamer.model import Params
from gossamer.model.sparse import Operator, make_operator

MIX_BLOCK = 1 << 17  # numbers of all hosted agents in a block (512 KiB of float32), which stays in the cache
MIN_SPARSE_SIZE, MAX_SPARSE_DENSITY = 32, 0.1  # of C between hosted agents, to be stored as a sparse matrix


@dataclass(frozen=True)
class PlainMethod:
    """Every number of the weights is sent as it is."""

    pairwise = False
    exchanges = 1
    advice = Advice()

    def payload_bytes(self, shapes: Mapping[str, Shape], itemsize: int) -> int:
        return sum(map(math.prod, shapes.values())) * itemsize

    def make(
        self, C: HostedCombination, shapes: Mapping[str, Shape], dtype: torch.dtype, seed: int
    ) -> "Mixing | ChangingMixing":
        return make_mixing(C, dtype) if C.at_step is None else ChangingMixing(C, C.at_step, dtype)


@dataclass(frozen=True)
class Mixing:
    """The rows of C that belong to the hosted agents, and the links on which their weights travel."""

    local_block: Tensor | Operator  # C between hosted agents [hosted, hosted]
    remote_block: Tensor  # C between hosted agents and neighbours elsewhere [hosted, vectors that arrive]
    outgoing: tuple[
        tuple[Link, tuple[int, ...]], ...
    ]  # agents whose vectors a link carries: positions among the hosted
    incoming: tuple[tuple[Link, slice], ...]  # columns of `remote_block` whose agents' vectors arrive on a link

    exchanges = 1

    def init(self, like: Params) -> StateDict:
        return {}

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        own = [part.flatten(1) for part in psi.values()]
        arrived = yield from self.exchange(own, index)
        for i, (name, part) in enumerate(zip(psi, own, strict=True)):
            self.apply(part, [(columns, pieces[i]) for columns, pieces in arrived], into[name].flatten(1))
        return into

    def exchange(
        self,
        own: Sequence[Tensor],
        index: int,
        dtype: torch.dtype | None = None,
        bound_magnitude: Callable[[Tensor], float] | None = None,
    ) -> Generator[Outbox, Inbox, list[tuple[slice, list[Tensor]]]]:
        """Exchange arrays with the neighbours on other hosts.

        `own` holds a tensor [hosted, n] for each array. A message holds its senders' rows [senders, n], one array after
        the other. Returns for each link its columns of `remote_block` and the tensors [senders, n] that arrived.
        """
        # Links with the same agents carry the same message, which an engine encodes once.
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
            bound_magnitude,
        )
        return [
            (columns, [piece.view(counts[link], -1) for piece in inbox[link].split([counts[link] * n for n in sizes])])
            for link, columns in self.incoming
        ]

    def apply(self, own: Tensor, arrived: Sequence[tuple[slice, Tensor]], out: Tensor) -> None:
        """Write C times one array's rows into `out`: the hosted agents' rows `own` [hosted, n], and those that have
        `arrived` with their columns of `remote_block`."""
        pieces = [(self.remote_block[:, columns], piece) for columns, piece in arrived]
        width = max(1, MIX_BLOCK // len(own)) if pieces else own.shape[1]  # one product alone needs no blocks
        for begin in range(0, own.shape[1], width):
            block = slice(begin, begin + width)
            _multiply(self.local_block, own[:, block], out[:, block])
            for weights, piece in pieces:
                if weights.numel() == 1:
                    out[:, block].add_(piece[:, block], alpha=float(weights))
                else:
                    out[:, block].addmm_(weights, piece[:, block])


@dataclass(frozen=True)
class ChangingMixing:
    """w_k = sum_z C^t_kz psi_z with another C^t in every step, of agents that are all on one host."""

    combination: HostedCombination
    at_step: Callable[[int], Floats]  # C^t [m, m]
    dtype: torch.dtype

    exchanges = 1

    def init(self, like: Params) -> StateDict:
        return {}

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        rows = self.at_step(step)[list(self.combination.agents)]
        mixing = make_mixing(replace(self.combination, rows=rows), self.dtype)
        return (yield from mixing(psi, into, state, index, step))


def make_mixing(C: HostedCombination, dtype: torch.dtype) -> Mixing:
    """Set up the mixing of a host's agents from their rows of C.

    Without `C.hosting` every agent is a link endpoint of its own. With it links join hosts, and a host is sent an
    agent's weights once, however many of its agents need them.
    """
    rows, agents = C.rows, C.agents
    here = np.asarray(agents, dtype=np.int64)
    endpoint = endpoints(C.hosting, rows.shape[1])
    elsewhere = np.ones(rows.shape[1], dtype=bool)
    elsewhere[here] = False
    # Hosted position and remote agent of each weight. C is symmetric: on each of these pairs vectors go both ways.
    k, z = np.nonzero(rows * elsewhere)
    # A transfer is a column (sender's endpoint, receiver's endpoint, agent whose vector it is).
    transfers, column = np.unique(np.stack([endpoint[z], endpoint[here[k]], z]), axis=1, return_inverse=True)
    remote = np.zeros((len(here), transfers.shape[1]))
    remote[k, column] = rows[k, z]
    incoming = tuple(group_by_link(transfers[0], transfers[1]))
    transfers = np.unique(np.stack([endpoint[here[k]], endpoint[z], here[k]]), axis=1)
    order = np.argsort(here)
    position = order[np.searchsorted(here[order], transfers[2])]
    links = group_by_link(transfers[0], transfers[1])
    outgoing = tuple((link, tuple(position[chosen].tolist())) for link, chosen in links)
    local = rows[:, here]
    is_sparse = len(here) > MIN_SPARSE_SIZE and np.count_nonzero(local) < MAX_SPARSE_DENSITY * local.size
    return Mixing(
        local_block=make_operator(sparse.csr_array(local), dtype) if is_sparse else torch.tensor(local, dtype=dtype),
        remote_block=torch.tensor(remote, dtype=dtype),
        outgoing=outgoing,
        incoming=incoming,
    )


def _multiply(matrix: Tensor | Operator, vectors: Tensor, out: Tensor) -> None:
    if isinstance(matrix, Operator):
        out.copy_(matrix @ vectors)
    else:
        torch.mm(matrix, vectors, out=out)


def _parse(words: list[str]) -> PlainMethod:
    if words:
        raise ValueError
    return PlainMethod()


PLAIN_CONSENSUS = ConsensusKind(_parse, lambda: ["none"])  # written --compress none
