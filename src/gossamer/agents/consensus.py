"""Consensus: w_k = sum_z C_kz psi_z over agent k's neighbours (eq. (16))."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link
from gossamer.model import Params
from gossamer.model.sparse import Operator, make_operator


@dataclass(frozen=True)
class Mixing:
    """The rows of C that belong to the hosted agents, and the links on which their weights travel."""

    inside: Tensor | Operator  # C between hosted agents [hosted, hosted]
    outgoing: tuple[tuple[Link, int], ...]  # with the sender's position among the hosted agents
    incoming: tuple[tuple[Link, int, float], ...]  # in sender order, with the receiver's position and C_kz

    def __call__(self, psi: Params, into: Params) -> Generator[Outbox, Inbox, Params]:
        """Plain mixing in one exchange. `into` is overwritten and returned; psi is read."""
        messages: dict[Link, Tensor] = {}
        if self.outgoing:
            vectors = torch.cat([part.flatten(1) for part in psi.values()], dim=1)
            own = vectors.unbind()  # all neighbours get the same tensor, which a runtime encodes once
            messages = {link: own[position] for link, position in self.outgoing}
        sizes = [part[0].numel() for part in psi.values()]
        inbox = yield Outbox(Phase.CONSENSUS, 0, messages, {link: (sum(sizes),) for link, *_ in self.incoming})
        for name, part in psi.items():
            _multiply(self.inside, part.flatten(1), into[name].flatten(1))
        for link, position, weight in self.incoming:
            for target, piece in zip(into.values(), inbox[link].split(sizes), strict=True):
                target[position].add_(piece.view_as(target[position]), alpha=weight)
        return into


def make_mixing(rows: NDArray[np.float64], agents: Sequence[int], dtype: torch.dtype) -> Mixing:
    """The hosted agents' mixing from their rows of C [hosted, m]."""
    here = np.asarray(agents, dtype=np.int64)
    elsewhere = np.setdiff1d(np.arange(rows.shape[1]), here)
    inside = rows[:, here]
    z, k = np.nonzero(rows[:, elsewhere].T)  # by sender, then by receiver
    k_out, z_out = np.nonzero(rows[:, elsewhere])  # C is symmetric: who hears from whom also tells it
    sparse_enough = len(here) > 32 and np.count_nonzero(inside) < 0.1 * inside.size
    return Mixing(
        inside=make_operator(sparse.csr_array(inside), dtype) if sparse_enough else torch.tensor(inside, dtype=dtype),
        outgoing=tuple((Link(int(here[a]), int(elsewhere[b])), int(a)) for a, b in zip(k_out, z_out, strict=True)),
        incoming=tuple(
            (Link(int(elsewhere[b]), int(here[a])), int(a), float(rows[a, elsewhere[b]]))
            for b, a in zip(z, k, strict=True)
        ),
    )


def _multiply(matrix: Tensor | Operator, vectors: Tensor, out: Tensor) -> None:
    if isinstance(matrix, Operator):
        out.copy_(matrix @ vectors)
    else:
        torch.mm(matrix, vectors, out=out)
