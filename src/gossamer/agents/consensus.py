"""Consensus: w_k = sum_z C_kz psi_z over agent k's neighbours (eq. (16))."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Ints, Link
from gossamer.model import Params
from gossamer.model.sparse import Operator, make_operator


@dataclass(frozen=True)
class Mixing:
    """The rows of C that belong to the hosted agents, and the links on which their weights travel."""

    inside: Tensor | Operator  # C between hosted agents [hosted, hosted]
    outside: Tensor  # C between hosted agents and those elsewhere that they hear of [hosted, incoming links]
    outgoing: tuple[tuple[Link, int], ...]  # with the sender's position among the hosted agents
    incoming: tuple[Link, ...]  # in sender order

    def __call__(self, psi: Params, into: Params) -> Generator[Outbox, Inbox, Params]:
        """Plain mixing in one exchange. `into` is overwritten and returned; psi is read."""
        messages: dict[Link, Tensor] = {}
        if self.outgoing:
            vectors = torch.cat([part.flatten(1) for part in psi.values()], dim=1)
            own = vectors.unbind()  # all neighbours get the same tensor, which a runtime encodes once
            messages = {link: own[position] for link, position in self.outgoing}
        sizes = [part[0].numel() for part in psi.values()]
        inbox = yield Outbox(Phase.CONSENSUS, 0, messages, dict.fromkeys(self.incoming, (sum(sizes),)))
        for name, part in psi.items():
            _multiply(self.inside, part.flatten(1), into[name].flatten(1))
        targets = [into[name].flatten(1) for name in psi]
        if len(self.outside) == 1:  # one agent adds what arrives where it lies
            for link, weight in zip(self.incoming, self.outside[0].tolist(), strict=True):
                for target, piece in zip(targets, inbox[link].split(sizes), strict=True):
                    target[0].add_(piece, alpha=weight)
        elif self.incoming:
            arrived = torch.stack([inbox[link] for link in self.incoming])
            for target, piece in zip(targets, arrived.split(sizes, dim=1), strict=True):
                target.addmm_(self.outside, piece)
        return into


def make_mixing(
    rows: NDArray[np.float64], agents: Sequence[int], dtype: torch.dtype, hosting: Ints | None = None
) -> Mixing:
    """The hosted agents' mixing from their rows of C [hosted, m].

    `hosting` says which host carries each agent. A host gets an agent's weights once, however many of its agents need
    them; the link names the first of these. Without it, every agent is reckoned to be on its own.
    """
    here = np.asarray(agents, dtype=np.int64)
    place = np.arange(rows.shape[1]) if hosting is None else hosting
    elsewhere = np.ones(rows.shape[1], dtype=bool)
    elsewhere[here] = False
    k, z = np.nonzero(rows * elsewhere)  # hosted position, agent elsewhere; C is symmetric: both hear of each other
    # Incoming: one column for each agent elsewhere and host of ours that hears of it.
    pairs, column = np.unique(np.stack([z, place[here[k]]]), axis=1, return_inverse=True)
    outside = np.zeros((len(here), pairs.shape[1]))
    outside[k, column] = rows[k, z]
    first = np.full(pairs.shape[1], rows.shape[1])
    np.minimum.at(first, column, here[k])
    incoming = tuple(Link(int(a), int(b)) for a, b in zip(pairs[0], first, strict=True))
    # Outgoing: one for each hosted agent and host elsewhere that hears of it.
    pairs, column = np.unique(np.stack([k, place[z]]), axis=1, return_inverse=True)
    first = np.full(pairs.shape[1], rows.shape[1])
    np.minimum.at(first, column, z)
    inside = rows[:, here]
    sparse_enough = len(here) > 32 and np.count_nonzero(inside) < 0.1 * inside.size
    return Mixing(
        inside=make_operator(sparse.csr_array(inside), dtype) if sparse_enough else torch.tensor(inside, dtype=dtype),
        outside=torch.tensor(outside, dtype=dtype),
        outgoing=tuple((Link(int(here[a]), int(b)), int(a)) for a, b in zip(pairs[0], first, strict=True)),
        incoming=incoming,
    )


def _multiply(matrix: Tensor | Operator, vectors: Tensor, out: Tensor) -> None:
    if isinstance(matrix, Operator):
        out.copy_(matrix @ vectors)
    else:
        torch.mm(matrix, vectors, out=out)
