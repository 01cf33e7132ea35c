"""Counters of random numbers by edge, for dropout of attention."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents.counter_rng import hash_columns, hash_rows
from gossamer.agents.plan import LayerPlan


@dataclass(frozen=True)
class EdgeCounters:
    """Counters of random numbers by edge, for dropout of attention; vertices go by their global numbers."""

    counters: Tensor  # int32 [edges, 1] or [edges, time, 1]
    salt_row: Tensor | None  # hosted vertex of each edge's target, shaped alike; None: drawn from the seed

    def select(self, edges: Tensor) -> "EdgeCounters":
        """Counters of some of the edges."""
        return EdgeCounters(self.counters[edges], None if self.salt_row is None else self.salt_row[edges])


def make_edge_counters(
    dropout: float,
    plan: LayerPlan,
    vertices: NDArray[np.int64],
    row: NDArray[np.int64],
    columns: NDArray[np.int64] | None,
    secret: bool,
) -> EdgeCounters | None:
    """Counters of a layer's edges (i, j): a hash of both ends, in that order."""
    edges = plan.outputs.edges
    if edges is None or not dropout:
        return None
    target, source = plan.targets[edges.target.numpy()], plan.sources[edges.source.numpy()]
    ends = hash_rows(torch.from_numpy(vertices[target])) + hash_columns(torch.from_numpy(vertices[source]))
    counters = hash_rows(ends)[:, None]
    if columns is not None:
        counters = counters[:, :, None] + hash_rows(hash_columns(torch.from_numpy(columns)))[None, :, None]
    salt_row = torch.from_numpy(row[target]).view(-1, *[1] * (counters.ndim - 1)) if secret else None
    return EdgeCounters(counters, salt_row)
