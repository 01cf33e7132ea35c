"""Gathers: sums of the offers on a vertex's edges by a graph filter, or the offers one by one (eq. (5), (25)-(26)).

A graph filter is linear, y = sum_p f_p(D) x_p: rows may be added up on their way. `Edgewise` brings every offer by
itself. A gather is a value of three generators. `fields` finds where each x_p is needed; the others do the
arithmetic around the propagations: they yield u and are sent what a propagation makes of it (`combine`), or yield g and
are sent what the reversed propagation makes of that (`combine_transposed`). So they know nothing of agents or messages.
An order-P filter takes P propagations of the layer's width: Horner's rule for monomials, and for Chebyshev polynomials,
the filters of Defferrard, Bresson and Vandergheynst (2016), "Convolutional neural networks on graphs with fast
localized spectral filtering", Clenshaw's (1955), "A note on the summation of Chebyshev series". `PageRank` is the
filter of Gasteiger, Bojchevski and Guennemann (2019), "Predict then propagate: graph neural networks meet personalized
PageRank".
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

VertexMask = NDArray[np.bool_]  # a set of vertices [n]
Steps = Generator[Tensor, Tensor, Tensor]
Within = Mapping[tuple[int, int], Tensor]  # (q, p): positions of U_q in U_p


class Gather(Protocol):
    """x_p is offered for each p in `powers`, ascending; U_p are the vertices at which it is needed."""

    @property
    def powers(self) -> tuple[int, ...]: ...

    @property
    def linear(self) -> bool:
        """A propagation is D u, whose rows links may aggregate; else offers travel and arrive one by one."""
        ...

    @property
    def own(self) -> bool:
        """The layer keeps something of a vertex's own input for its output: inputs are needed on U_0, too."""
        ...

    @property
    def nested(self) -> tuple[tuple[int, int], ...]:
        """Pairs (q, p) of fields, U_q within U_p, whose positions the arithmetic asks for."""
        ...

    def fields(self, outputs: VertexMask) -> Generator[VertexMask, VertexMask, list[VertexMask]]:
        """U_0 = outputs, U_1, ..., U_P; the p-th propagation goes from U_p to U_{p-1}.

        Yields vertices and is sent those that D needs to reach them, {j: D_ij != 0 for one of the vertices i}.
        """
        ...

    def combine(self, terms: Sequence[Tensor], within: Within) -> Steps:
        """y on U_0 from x_p on U_p; `within` has the positions of the nested fields."""
        ...

    def combine_transposed(self, g: Tensor, within: Within) -> Generator[Tensor, Tensor, list[Tensor]]:
        """The gradient of every x_p from that of y: f_p(D)^T g."""
        ...


def find_inputs(gather: Gather, sets: Sequence[VertexMask]) -> VertexMask:
    """Vertices whose input a layer needs, from the fields U_0, ..., U_P of its gather (or a part of each)."""
    needed = {*gather.powers, *([0] if gather.own else [])}
    return np.asarray(np.logical_or.reduce([sets[p] for p in sorted(needed)]))


@dataclass(frozen=True)
class Monomial:
    """y = sum_{p in powers} D^p x_p. Powers (1,): eq. (5); (0, ..., P): eq. (25)-(26); (0,): no graph at all."""

    powers: tuple[int, ...]
    own: bool = False

    linear = True
    nested = ()

    def fields(self, outputs: VertexMask) -> Generator[VertexMask, VertexMask, list[VertexMask]]:
        sets = [outputs]
        for _ in range(self.powers[-1]):
            sets.append((yield sets[-1]))
        return sets

    def combine(self, terms: Sequence[Tensor], within: Within) -> Steps:
        """Horner's rule: y = x_0 + D (x_1 + D (x_2 + ...)), the brackets of eq. (26)."""
        offered = dict(zip(self.powers, terms, strict=True))
        u = offered[self.powers[-1]]
        for p in reversed(range(self.powers[-1])):
            u = yield u
            if p in offered:
                u = u + offered[p]
        return u

    def combine_transposed(self, g: Tensor, within: Within) -> Generator[Tensor, Tensor, list[Tensor]]:
        """x_p receives (D^T)^p g."""
        gradients = [g]
        for _ in range(self.powers[-1]):
            gradients.append((yield gradients[-1]))
        return [gradients[p] for p in self.powers]


@dataclass(frozen=True)
class Chebyshev:
    """y = sum_{p=0}^P T_p(D) x_p with T_0 = 1, T_1(D) = D, T_p = 2 D T_{p-1} - T_{p-2}."""

    order: int
    own: bool = False

    linear = True

    @property
    def powers(self) -> tuple[int, ...]:
        return tuple(range(self.order + 1))

    @property
    def nested(self) -> tuple[tuple[int, int], ...]:
        return tuple((p - 2, p) for p in range(2, self.order + 1))

    def fields(self, outputs: VertexMask) -> Generator[VertexMask, VertexMask, list[VertexMask]]:
        sets = [outputs]
        for p in range(1, self.order + 1):
            reached = yield sets[-1]
            sets.append(reached | sets[p - 2] if p >= 2 else reached)
        return sets

    def combine(self, terms: Sequence[Tensor], within: Within) -> Steps:
        """Clenshaw's rule: b_p = x_p + 2 D b_{p+1} - b_{p+2}, y = x_0 + D b_1 - b_2."""
        b, later = terms[self.order], None
        for p in reversed(range(self.order)):
            shifted = yield b
            y = terms[p] + (shifted if p == 0 else 2 * shifted)
            if later is not None:
                y = y - later.index_select(0, within[p, p + 2])
            b, later = y, b
        return b

    def combine_transposed(self, g: Tensor, within: Within) -> Generator[Tensor, Tensor, list[Tensor]]:
        """x_p receives t_p = T_p(D)^T g: t_0 = g, t_1 = D^T g, t_p = 2 D^T t_{p-1} - t_{p-2}."""
        t = [g]
        for p in range(1, self.order + 1):
            shifted = yield t[-1]
            if p >= 2:
                shifted = 2 * shifted
                shifted[within[p - 2, p]] -= t[p - 2]
            t.append(shifted)
        return t


@dataclass(frozen=True)
class PageRank:
    """y = u_0 with u_P = x, u_{p-1} = (1 - teleport) D u_p + teleport x: P steps towards personalised PageRank.

    x is offered once, on U_P, which holds all other fields.
    """

    order: int
    teleport: float
    own: bool = False

    linear = True

    @property
    def powers(self) -> tuple[int, ...]:
        return (self.order,)

    @property
    def nested(self) -> tuple[tuple[int, int], ...]:
        return tuple((p, self.order) for p in range(self.order))

    def fields(self, outputs: VertexMask) -> Generator[VertexMask, VertexMask, list[VertexMask]]:
        sets = [outputs]
        for _ in range(self.order):
            reached = yield sets[-1]
            sets.append(reached | sets[-1])
        return sets

    def combine(self, terms: Sequence[Tensor], within: Within) -> Steps:
        (x,) = terms
        u = x
        for p in reversed(range(self.order)):
            shifted = yield u
            u = (1 - self.teleport) * shifted + self.teleport * x.index_select(0, within[p, self.order])
        return u

    def combine_transposed(self, g: Tensor, within: Within) -> Generator[Tensor, Tensor, list[Tensor]]:
        """x receives (1 - teleport)^P (D^T)^P g, and teleport (1 - teleport)^p (D^T)^p g for every p < P."""
        kept = []
        for _ in range(self.order):
            kept.append(self.teleport * g)
            g = (1 - self.teleport) * (yield g)
        result = g.clone()
        for p, part in enumerate(kept):
            result[within[p, self.order]] += part
        return [result]


@dataclass(frozen=True)
class Edgewise:
    """Every offer on a vertex's edges, and its own, one by one: for attention, maxima, any function of them.

    A propagation brings the offers of neighbours beside those of the hosted vertices, and takes the gradients back.
    Edges are D's entries or, with `loops` given, the graph's alone, every vertex with a self-loop or none: then D's
    numbers do not matter.
    """

    loops: bool | None = None
    own: bool = False

    powers = (1,)
    linear = False
    nested = ()

    def fields(self, outputs: VertexMask) -> Generator[VertexMask, VertexMask, list[VertexMask]]:
        reached = yield outputs
        return [outputs, reached | outputs]

    def combine(self, terms: Sequence[Tensor], within: Within) -> Steps:
        return (yield terms[0])

    def combine_transposed(self, g: Tensor, within: Within) -> Generator[Tensor, Tensor, list[Tensor]]:
        return [(yield g)]
