"""The layer seam: the protocol between the training step and a layer (eq. (1), (5)).

A layer is a value. `offer` is what a vertex's own agent computes for the vertex's neighbours, `gather` joins the offers
on the data graph's edges, `finish` is what follows at the vertex: message, aggregation and update of message passing
(Gilmer et al. 2017, "Neural message passing for quantum chemistry"). What `finish` needs of the vertex's own input, its
agent computes with the offers and keeps (`keep`). Offer, keep and finish are plain PyTorch on the rows of the hosted
agents: autograd differentiates them there, and the exchange between them is transposed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.model.gather import Gather
from gossamer.model.product import DenseProduct, plan_dense
from gossamer.model.sparse import Pattern

Weights = Mapping[str, Tensor]  # a layer's parameters by their own names, stacked over the hosted agents


class Parameter(NamedTuple):
    """Shape of one agent's parameter, and whether it starts from random numbers or from `start`."""

    shape: tuple[int, ...]
    random: bool = True
    start: float = 0.0


class Input(Protocol):
    """A layer's input on a host, with dropout: a row for each vertex (and power) that is to offer something."""

    def linear(self, weight: Tensor) -> Tensor:
        """W_{a(j)}^T x_j: every row times its own agent's matrix; weight [agents(, powers), in, out]."""
        ...

    def rows(self, dropout: bool = True) -> Tensor:
        """x_j itself [rows(, time), in], with dropout or before it."""
        ...

    def narrow(self, width: int) -> "Input":
        """The first `width` columns of an input that is no sparse one."""
        ...

    def agent(self) -> Tensor:
        """Hosted agent of each row."""
        ...


@dataclass(frozen=True)
class Edges:
    """The data graph's edges into a host's output rows, for layers that see each offer by itself."""

    target: Tensor  # int64 [edges]: output row of i, ascending
    source: Tensor  # int64 [edges]: row of j among the offers
    weight: Tensor  # [edges]: D_ij
    own: Tensor  # int64 [outputs]: row of i itself among the offers
    agent: Tensor  # int64 [outputs]: hosted agent of each output row
    num_rows: int  # of the offers
    num_agents: int  # hosted

    @cached_property
    def starts(self) -> Tensor:
        """Position of each output row's first edge, int64 [outputs + 1]."""
        return _count_starts(self.target, len(self.agent))

    @cached_property
    def by_target(self) -> Pattern:
        """Offers of each output row's edges, [outputs, rows]."""
        return Pattern(self.starts.int(), self.source.int())

    @cached_property
    def source_order(self) -> Tensor:
        """An order of the edges by their source, int64 [edges]."""
        return torch.from_numpy(np.argsort(self.source.numpy(), kind="stable"))

    @cached_property
    def by_source(self) -> Pattern:
        """Outputs of each offer's edges, [rows, outputs], in the source order."""
        order = self.source_order
        return Pattern(_count_starts(self.source[order], self.num_rows).int(), self.target[order].int())

    @cached_property
    def views(self) -> "EdgeViews":
        """The pairs of an offer and a hosted agent that receives it."""
        keys = self.agent.numpy()[self.target.numpy()] * max(self.num_rows, 1) + self.source.numpy()
        pairs, view = np.unique(keys, return_inverse=True)
        order = np.argsort(view, kind="stable")
        agent, row = np.divmod(pairs, max(self.num_rows, 1))
        starts = np.searchsorted(agent, np.arange(self.num_agents + 1))
        return EdgeViews(
            torch.from_numpy(row),
            tuple(starts.tolist()),
            torch.from_numpy(view.astype(np.int64).reshape(-1)),
            Pattern(
                torch.from_numpy(np.searchsorted(view[order], np.arange(len(pairs) + 1)).astype(np.int32)),
                torch.from_numpy(order.astype(np.int32)),
            ),
        )


@dataclass(frozen=True)
class EdgeViews:
    """Pairs of an offer and a hosted agent that receives it, by agent: where the receiver's parameters meet offers."""

    row: Tensor  # int64 [views]: of the offer
    starts: tuple[int, ...]  # [agents + 1]: first view of each agent
    of_edge: Tensor  # int64 [edges]
    edges: Pattern  # [views, edges]: those of each view


def _count_starts(ascending: Tensor, count: int) -> Tensor:
    return torch.searchsorted(ascending, torch.arange(count + 1))


@dataclass(frozen=True)
class RowProduct:
    """The product of rows with their own agents' matrices, planned when a layer first asks for it."""

    agent: Tensor  # int64 [rows], hosted

    @cached_property
    def _plans(self) -> dict[torch.dtype, DenseProduct]:
        return {}

    def plan(self, dtype: torch.dtype) -> DenseProduct:
        if dtype not in self._plans:
            agent = self.agent.numpy()
            self._plans[dtype] = plan_dense(np.arange(len(agent)), agent, len(agent), dtype)
        return self._plans[dtype]


@dataclass(frozen=True)
class Outputs:
    """The output rows of a layer on a host."""

    agent: Tensor  # int64 [outputs]: hosted agent of each row
    product: RowProduct
    edges: Edges | None = None  # where offers come one by one
    kept: Tensor | None = None  # what `keep` has made of the rows' own inputs
    drop_edges: Callable[[Tensor], Tensor] | None = None  # dropout of numbers by edge [edges, (time,) heads]

    def spread(self, parameter: Tensor, ndim: int) -> Tensor:
        """One row of a parameter [agents, width] for each output row, broadcast over a time axis."""
        return spread(parameter, self.agent, ndim)

    def linear(self, rows: Tensor, weight: Tensor) -> Tensor:
        """W_{a(i)}^T rows_i: every output row times its own agent's matrix; weight [agents, in, out]."""
        return self.product.plan(rows.dtype)(rows.contiguous(), weight)

    def require_edges(self) -> Edges:
        """The edges of a layer that sees offers one by one."""
        if self.edges is None:
            raise AssertionError("offers come as sums: the layer's gather is no Edgewise")
        return self.edges

    def require_kept(self) -> Tensor:
        """What the layer has kept of the rows' own inputs."""
        if self.kept is None:
            raise AssertionError("nothing was kept: the layer's gather has no `own`")
        return self.kept


def make_outputs(agent: Tensor, edges: Edges | None = None) -> Outputs:
    """The output rows of these hosted agents."""
    return Outputs(agent, RowProduct(agent), edges)


def spread(parameter: Tensor, agent: Tensor, ndim: int) -> Tensor:
    """One row of a parameter [agents, width] for each row of `agent`, broadcast over a time axis."""
    rows = parameter.index_select(0, agent)
    return rows if ndim == 2 else rows[:, None, :]


class Layer(Protocol):
    """One layer of a network, a value without state."""

    @property
    def inputs(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def width(self) -> int:
        """Length of the row that a vertex offers, which is sent."""
        ...

    @property
    def dropout(self) -> float:
        """Of the input."""
        ...

    @property
    def gather(self) -> Gather: ...

    def parameters(self) -> dict[str, Parameter]:
        """One agent's parameters by name."""
        ...

    def offer(self, x: Input, weights: Weights) -> Tensor:
        """Offers [rows of x(, time), width], computed by the vertices' own agents."""
        ...

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        """Outputs [output rows(, time), outputs] from the gathered offers: sums of a filter, or all offers by edge."""
        ...


class KeepingLayer(Layer, Protocol):
    """A layer whose gather has `own`: something of a vertex's own input is kept for its output."""

    def keep(self, x: Input, weights: Weights) -> Tensor:
        """What the output rows' own agents keep of their input x [output rows(, time), any width]."""
        ...


def edge_dropout(layer: Layer) -> float:
    """Dropout of numbers by edge, such as attention, which a layer may have."""
    return float(getattr(layer, "edge_dropout", 0.0))
