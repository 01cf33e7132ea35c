"""A block around a layer: normalisation, activation, residual connection and jumping knowledge, all local to a vertex.

    u_i = activation(LayerNorm(layer(x)_i))                       layer normalisation
    h_i = u_i + x_i, or u_i + R_{a(i)}^T x_i for other widths     residual connection
    c_i = (c_i, h_i), or max(c_i, h_i)                            jumping knowledge

Dropout is of the input of linear maps, R among them: where widths are equal, x_i is added as it is.

Ba, Kiros and Hinton (2016), "Layer normalization"; He, Zhang, Ren and Sun (2016), "Deep residual learning for image
recognition"; Xu et al. (2018), "Representation learning on graphs with jumping knowledge networks".

Each is a function of one vertex's numbers and its own agent's weights: no exchange is added. Jumping knowledge goes
from block to block beside the signal, as columns [h_i | c_i] of which the layers see h_i; the last block hands on c_i.
Normalisation over vertices (Ioffe and Szegedy 2015, "Batch normalization") would need sums over all agents at every
step, and is refused where settings are read.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from gossamer.model.gather import Gather
from gossamer.model.layers.activations import ACTIVATIONS
from gossamer.model.layers.layer import Input, KeepingLayer, Layer, Outputs, Parameter, Weights, edge_dropout
from gossamer.model.layers.names import Alias, NamedParameters, linear


@dataclass(frozen=True)
class Block:
    """`layer` is without activation. `jump` is "", cat or max, `carried` the columns c_i that come in; with `last`
    only c_i goes out."""

    layer: Layer
    activation: str
    norm: bool
    residual: bool
    jump: str = ""
    carried: int = 0
    last: bool = False

    @property
    def inputs(self) -> int:
        return self.layer.inputs + self.carried

    @property
    def outputs(self) -> int:
        if not self.jump:
            return self.layer.outputs
        carried = self.layer.outputs + (self.carried if self.jump == "cat" else 0)
        return carried if self.last else self.layer.outputs + carried

    @property
    def width(self) -> int:
        return self.layer.width

    @property
    def dropout(self) -> float:
        return self.layer.dropout

    @property
    def edge_dropout(self) -> float:
        return edge_dropout(self.layer)

    @property
    def projects(self) -> bool:
        """The residual connection has weights R."""
        return self.residual and self.layer.inputs != self.layer.outputs

    @property
    def gather(self) -> Gather:
        inner = self.layer.gather
        if inner.own or not (self.residual or self.carried):
            return inner
        return cast(Gather, replace(cast(Any, inner), own=True))

    def parameters(self) -> dict[str, Parameter]:
        """The layer's, `residual` R [in, out], `norm_weight` and `norm_bias` [out]."""
        parameters = self.layer.parameters()
        if self.projects:
            parameters["residual"] = Parameter((self.layer.inputs, self.layer.outputs))
        if self.norm:
            parameters["norm_weight"] = Parameter((self.layer.outputs,), random=False, start=1.0)
            parameters["norm_bias"] = Parameter((self.layer.outputs,), random=False)
        return parameters

    def offer(self, x: Input, weights: Weights) -> Tensor:
        return self.layer.offer(self._narrow(x), weights)

    def keep(self, x: Input, weights: Weights) -> Tensor:
        """What the layer keeps, the residual and c_i, beside each other."""
        seen, parts = self._narrow(x), []
        if self.layer.gather.own:
            parts.append(cast(KeepingLayer, self.layer).keep(seen, weights))
        if self.residual:
            parts.append(seen.linear(weights["residual"]) if self.projects else seen.rows(dropout=False))
        if self.carried:
            parts.append(x.rows(dropout=False)[..., -self.carried :])
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        before = residual = None
        own = at.kept
        if own is not None and self.carried:
            own, before = own.tensor_split([own.shape[-1] - self.carried], -1)
        if own is not None and self.residual:
            own, residual = own.tensor_split([own.shape[-1] - self.layer.outputs], -1)
        h = self.layer.finish(z, replace(at, kept=own), weights)
        if self.norm:
            h = layer_norm(h, h.shape[-1:]) * at.spread(weights["norm_weight"], h.ndim)
            h = h + at.spread(weights["norm_bias"], h.ndim)
        h = ACTIVATIONS[self.activation](h)
        if residual is not None:
            h = h + residual
        if not self.jump:
            return h
        carried = h if before is None else torch.cat([before, h], -1) if self.jump == "cat" else before.maximum(h)
        return carried if self.last else torch.cat([h, carried], -1)

    def _narrow(self, x: Input) -> Input:
        return x.narrow(self.layer.inputs) if self.carried else x

    def aliases(self) -> list[Alias]:
        named = [*cast(NamedParameters, self.layer).aliases()]
        if self.projects:
            named.append(linear("residual", "residual"))
        if self.norm:
            named += [Alias("norm.weight", "norm_weight"), Alias("norm.bias", "norm_bias")]
        return named
