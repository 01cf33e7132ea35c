"""A layer from outside the package that is not linear in its offers: an edge-wise maximum with two kinds of bias.

h_i = activation(max over j with D_ij != 0, and i itself, of D_ij (W_{a(j)}^T x_j) + c_{a(i)} * own offer + b_{a(i)})
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.model.gather import Edgewise
from gossamer.model.layers import ACTIVATIONS, Input, LayerKind, LayerOptions, Outputs, Parameter, Weights


@dataclass(frozen=True)
class Maximum:
    inputs: int
    outputs: int
    activation: str
    dropout: float

    gather = Edgewise()

    @property
    def width(self) -> int:
        return self.outputs

    def parameters(self) -> dict[str, Parameter]:
        return {
            "weight": Parameter((self.inputs, self.outputs)),
            "own": Parameter((self.outputs,)),
            "bias": Parameter((self.outputs,), random=False),
        }

    def offer(self, x: Input, weights: Weights) -> Tensor:
        # `own` serves in offer and in finish: its gradient is the sum of both.
        return x.linear(weights["weight"]) * (1 + _rows(weights["own"], x.agent(), x.linear(weights["weight"]).ndim))

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        edges = at.edges
        assert edges is not None
        shaped = edges.weight.view(-1, *[1] * (z.ndim - 1))
        own = z.index_select(0, edges.own)
        index = edges.target.view(-1, *[1] * (z.ndim - 1)).expand(-1, *z.shape[1:])
        largest = own.scatter_reduce(0, index, shaped * z.index_select(0, edges.source), "amax")
        mixed = largest + at.spread(weights["own"], z.ndim) * own + at.spread(weights["bias"], z.ndim)
        return ACTIVATIONS[self.activation](mixed)


def _rows(parameter: Tensor, agent: Tensor, ndim: int) -> Tensor:
    rows = parameter.index_select(0, agent)
    return rows if ndim == 2 else rows[:, None, :]


def make(how: LayerOptions) -> Maximum:
    return Maximum(how.inputs, how.outputs, how.activation, how.dropout)


KIND = LayerKind(make)


def whole_graph(D: Tensor, X: Tensor, owner: Tensor, params: dict[str, Tensor], activations: list[str]) -> Tensor:
    """The network's outputs vertex by vertex, without agents' messages."""
    h = X
    for index, activation in enumerate(activations):
        W, own, bias = (params[f"layer.{index}.{name}"][owner] for name in ("weight", "own", "bias"))
        if X.ndim == 3:
            own, bias = own[:, None], bias[:, None]
        offers = torch.einsum("n...i,nio->n...o", h, W) * (1 + own)
        rows = []
        for i in range(len(D)):
            terms = [offers[i]] + [D[i, j] * offers[j] for j in range(len(D)) if D[i, j] != 0]
            rows.append(torch.stack(terms).amax(0))
        h = ACTIVATIONS[activation](torch.stack(rows) + own * offers + bias)
    return h
