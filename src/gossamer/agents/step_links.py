"""Links of one step: which boundary rows are known in it, and how the output rows are scaled for those that are not.

Row i of D is scaled by its receiver so that sum_j |D_ij| over what it has is that over all j.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gossamer.array_types import Floats, Ints
from gossamer.model.layers import Edges


@dataclass(frozen=True)
class StepLinks:
    """Boundary rows of one step by receiver and sender [m, m]."""

    arriving: Tensor  # bool
    known: Tensor  # bool: those that arrive, and those for which the last rows stand in
    last: Mapping[int, Tensor]  # last rows by exchange [hosted, rows, width]; none are kept without them


@dataclass(frozen=True)
class RowEnds:
    """The two agents of each message row."""

    receiver: Tensor  # int64 [rows]
    sender: Tensor

    def select(self, pairs: Tensor) -> Tensor:
        """Values [rows] of a table of pairs [m, m]."""
        return pairs[self.receiver, self.sender]


@dataclass(frozen=True)
class RowSums:
    """sum_j |D_ij| of every output row i, by the agent of j."""

    own: Tensor  # float64 [rows]: over the receiver's own vertices j
    row: Tensor  # int64 [entries]: output row, for each other agent z
    ends: RowEnds  # its agent, and z
    value: Tensor  # float64 [entries]

    def scale(self, links: StepLinks) -> Tensor | None:
        """Factor of each output row [rows]; None if it is 1 everywhere."""
        known = self.ends.select(links.known)
        if bool(known.all()):
            return None
        whole = self.own.index_add(0, self.row, self.value)
        kept = self.own.index_add(0, self.row, self.value * known)
        return torch.where(kept > 0, whole / kept, 1.0)


def scale_rows(rows: Tensor, sums: RowSums | None, links: StepLinks | None) -> Tensor:
    """The output rows, or their gradients, times their factors in a step."""
    factor = None if sums is None or links is None else sums.scale(links)
    return rows if factor is None else rows * factor.to(rows.dtype).view(-1, *[1] * (rows.ndim - 1))


def select_edges(edges: Edges, sums: RowSums, ends: RowEnds, hosted: int, links: StepLinks) -> tuple[Edges, Tensor]:
    """The edges whose offers are known in a step, weights scaled with their rows, and their positions among all.

    The first `hosted` offers are the host's own, those behind them message rows with these `ends`.
    """
    known = torch.cat([torch.ones(hosted, dtype=torch.bool), ends.select(links.known)])
    chosen = torch.nonzero(known[edges.source]).flatten()
    target = edges.target[chosen]
    weight = edges.weight[chosen]
    factor = sums.scale(links)
    if factor is not None:
        weight = weight * factor.to(weight.dtype)[target]
    return replace(edges, target=target, source=edges.source[chosen], weight=weight), chosen


def sum_rows(own: Floats, row: Ints, receiver: Ints, sender: Ints, value: Floats) -> RowSums:
    """Sums of |D_ij| from the own ones [rows] and the entries from other agents' vertices j."""
    base = int(sender.max(initial=0)) + 1
    keys, number = np.unique(row * base + sender, return_inverse=True)
    agent = np.zeros(len(own), dtype=np.int64)
    agent[row] = receiver
    rows = keys // base
    return RowSums(
        torch.from_numpy(own.astype(np.float64)),
        torch.from_numpy(rows),
        RowEnds(torch.from_numpy(agent[rows]), torch.from_numpy(keys % base)),
        torch.from_numpy(np.bincount(number, abs(value), len(keys))),
    )
