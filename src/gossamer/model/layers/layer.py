"""The layer seam: the protocol between the training step and a layer (eq. (1), (5)).

A layer is a value. `offer` is what a vertex's own agent computes for the vertex's neighbours, `gather` joins the offers
on the data graph's edges, `finish` is what follows at the vertex: message, aggregation and update of message passing
(Gilmer et al. 2017, "Neural message passing for quantum chemistry"). Offer and finish are plain PyTorch on the rows of
the hosted agents: autograd differentiates them there, and the exchange between them is transposed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from gossamer.model.gather import Gather

Weights = Mapping[str, Tensor]  # a layer's parameters by their own names, stacked over the hosted agents


class Parameter(NamedTuple):
    """Shape of one agent's parameter, and whether it starts from random numbers or from 0."""

    shape: tuple[int, ...]
    random: bool = True


class Input(Protocol):
    """A layer's input on a host, with dropout: a row for each vertex (and power) that is to offer something."""

    def linear(self, weight: Tensor) -> Tensor:
        """W_{a(j)}^T x_j: every row times its own agent's matrix; weight [agents(, powers), in, out]."""
        ...

    def rows(self) -> Tensor:
        """x_j itself [rows(, time), in]; not for sparse features, which only `linear` takes."""
        ...

    def agent(self) -> Tensor:
        """Hosted agent of each row."""
        ...


@dataclass(frozen=True)
class Edges:
    """The data graph's edges into a host's output rows, for layers that see each offer by itself."""

    target: Tensor  # int64 [edges]: output row of i
    source: Tensor  # int64 [edges]: row of j among the offers
    weight: Tensor  # [edges]: D_ij
    own: Tensor  # int64 [outputs]: row of i itself among the offers


@dataclass(frozen=True)
class Outputs:
    """The output rows of a layer on a host."""

    agent: Tensor  # int64 [outputs]: hosted agent of each row
    edges: Edges | None = None  # where offers come one by one

    def spread(self, parameter: Tensor, ndim: int) -> Tensor:
        """One row of a parameter [agents, width] for each output row, broadcast over a time axis."""
        rows = parameter.index_select(0, self.agent)
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
