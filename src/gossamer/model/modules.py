"""A network with one agent's weights as a plain PyTorch module, and the names of its parameters.

Names and shapes are those of PyTorch Geometric's layers in a list `convs`; each layer lists them (model/layers):

    a filter of one term         convs.0.lin.weight [out, in]                            gcn of order 1, mlp
    a filter of several terms    convs.0.lins.0.weight, convs.0.lins.1.weight, ...       chebyshev, polynomial
    attention                    convs.0.lin.weight, convs.0.att_src, convs.0.att_dst    gat
    bias                         convs.0.bias [out]

Before them there may be an encoder, `encoder.weight` and `encoder.bias` (model/encoder.py).

Ours are `layer.0.weight` [in, out] or [P + 1, in, out], and `layer.0.bias` [out].
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data.standardisation import Transform
from gossamer.errors import GossamerError
from gossamer.generators import drive
from gossamer.model.encoder import Encoder
from gossamer.model.gather import Edgewise, Gather
from gossamer.model.layers import Convolution, Edges, KeepingLayer, Layer, edge_dropout, make_outputs
from gossamer.model.layers.names import their_shape, to_ours
from gossamer.model.network import Network, Params
from gossamer.model.shift import make_shift
from gossamer.model.state_dicts import list_aliases, to_state_dict

GIVEN_SHIFT = "given"  # D itself is given to the module as edges and their weights


@dataclass(frozen=True)
class WholeInput:
    """The `Input` of the layer seam for all vertices of a graph and one set of weights."""

    x: Tensor
    dropped: Tensor
    powers: int = 1

    def linear(self, weight: Tensor) -> Tensor:
        terms = weight[0] if weight.ndim == 4 else weight
        return torch.cat([self.dropped @ w for w in terms])

    def rows(self, dropout: bool = True) -> Tensor:
        x = self.dropped if dropout else self.x
        return torch.cat([x] * self.powers)

    def narrow(self, width: int) -> "WholeInput":
        return replace(self, x=self.x[..., :width], dropped=self.dropped[..., :width])

    def agent(self) -> Tensor:
        return torch.zeros(len(self.x) * self.powers, dtype=torch.int64, device=self.x.device)


class GraphLayer(nn.Module):
    """One layer on all vertices of a graph: its own `offer`, `keep` and `finish`, with parameters under the names that
    PyTorch Geometric has for them."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer, self.aliases = layer, list_aliases(layer)
        shapes = {name: parameter.shape for name, parameter in layer.parameters().items()}
        for alias in self.aliases:
            path, _, name = alias.theirs.rpartition(".")
            home = _reach(self, path)
            shape = their_shape(alias, shapes)
            if alias.ours is None:
                home.register_buffer(name, torch.full(shape, alias.constant))
                continue
            start = layer.parameters()[alias.ours]
            value = torch.full(shape, start.start)
            home.register_parameter(name, nn.Parameter(nn.init.xavier_uniform_(value) if start.random else value))

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        layer, gather = self.layer, self.layer.gather
        dropped = functional.dropout(x, layer.dropout) if self.training and layer.dropout else x
        state = dict(self.named_parameters()) | dict(self.named_buffers())
        weights = {name: part[None] for name, part in to_ours(self.aliases, state, detach=False).items()}
        given = WholeInput(x, dropped, len(gather.powers))
        offers = layer.offer(given, weights)
        kept = cast(KeepingLayer, layer).keep(replace(given, powers=1), weights) if gather.own else None
        edges = None
        if isinstance(gather, Edgewise):
            z, edges = offers, _list_edges(shift, gather.loops)
        else:
            z = _combine(gather, list(offers.split(len(x))), shift)
        at = replace(make_outputs(torch.zeros(len(x), dtype=torch.int64, device=x.device), edges), kept=kept)
        rate = edge_dropout(layer)
        if self.training and rate:
            at = replace(at, drop_edges=lambda numbers: functional.dropout(numbers, rate))
        return layer.finish(z, at, weights)


def _reach(module: nn.Module, path: str) -> nn.Module:
    """The sub-module of a dotted path, made where it is missing."""
    for name in path.split(".") if path else ():
        if name not in dict(module.named_children()):
            module.add_module(name, nn.Module())
        module = module.get_submodule(name)
    return module


def _list_edges(shift: Tensor, loops: bool | None) -> Edges:
    """All edges of D, or of the graph with a self-loop at every vertex or at none."""
    n = len(shift)
    target, source = shift.indices()
    weight = shift.values()
    if loops is not None:
        apart = target != source
        target, source, weight = target[apart], source[apart], weight[apart]
    if loops:
        every = torch.arange(n)
        target, source = torch.cat([target, every]), torch.cat([source, every])
        weight = torch.cat([weight, torch.ones(n, dtype=weight.dtype)])
    order = torch.argsort(target, stable=True)
    every = torch.arange(n)
    return Edges(target[order], source[order], weight[order], every, torch.zeros_like(every), n, 1)


def _combine(gather: Gather, terms: list[Tensor], shift: Tensor) -> Tensor:
    """sum_p f_p(D) terms_p on all vertices."""
    every = torch.arange(len(terms[0]), device=terms[0].device)
    within = dict.fromkeys(gather.nested, every)
    return drive(gather.combine(terms, within), lambda u: (shift @ u.flatten(1)).reshape(u.shape))


class GraphNetwork(nn.Module):
    """A network without agents: `shift` is a name in SHIFTS, or "given" for a D that the caller gives.

    A network of standardised data standardises the features that it is called with and restores the units of real
    values: the buffers of its transform, `feature_offset` and so on, are no part of the state dict. With an encoder of
    `features` columns the layers take its encodings in their place.
    """

    feature_offset: Tensor
    feature_scale: Tensor
    target_offset: Tensor
    target_scale: Tensor

    def __init__(self, network: Network, shift: str, features: int | None = None) -> None:
        super().__init__()
        self.network, self.shift = network, shift
        self.encoder = None if features is None else Encoder(features, network.layers[0].inputs)
        self.standardises = self.restores = False
        self.convs = nn.ModuleList(GraphLayer(layer) for layer in network.layers)

    def register_transform(self, transform: Transform) -> None:
        """Standardise inputs, and restore outputs, in float64 whatever the weights have."""
        for name, part in transform.arrays().items():
            self.register_buffer(name, torch.from_numpy(part), persistent=False)
        self.standardises, self.restores = True, transform.target_scale is not None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Outputs [n(, time), outputs] of features x [n(, time), d] on the edges edge_index [2, edges].

        As in PyTorch Geometric, edge_index holds source and target of each edge in both directions, and edge_weight
        [edges] its weight, 1 without it. Self-loops are dropped: layers that count a vertex itself do so for every
        vertex. With a given D the edges are D's entries: D_ij is the weight of the edge from j to i.
        """
        elsewhere = [layer for layer in self.network.layers if not isinstance(layer, Convolution)]
        if x.device.type != "cpu" and elsewhere:
            raise GossamerError(
                f"layers of the kind {type(elsewhere[0]).__name__} run on the CPU, got features on {x.device}; call "
                "module.cpu(), or take module.to_pyg()"
            )
        shift = self._make_shift(edge_index, edge_weight, len(x)).to(x.device, self._dtype)
        if self.standardises:
            x = ((x - self.feature_offset) / self.feature_scale).to(self._dtype)
        if self.encoder is not None:
            x = self.encoder(x)
        for layer in self.convs:
            x = layer(x, shift)
        return (x * self.target_scale + self.target_offset).to(self._dtype) if self.restores else x

    def to_pyg(self) -> nn.Module:
        """The same network as one of PyTorch Geometric's models, GCN, GraphSAGE, GIN or GAT, with these weights and
        ready for evaluation; GossamerError where none of them computes the same (`gossamer docs models`).

        It takes the features of the data, as this module does: of a network of standardised data it has a module
        `standardisation`, which is called before and after its own `forward` and is no part of the state dict.
        Self-loops of a graph, which this module drops, count in GraphSAGE and GIN.
        """
        from gossamer.model.pyg_modules import build_pyg_module  # with PyTorch Geometric

        if self.encoder is not None:
            raise GossamerError(
                "expected a network of features, and this one has an encoder, which no model of PyTorch Geometric has; "
                "result.model() is the same network in plain PyTorch"
            )
        transform = dict(self.named_buffers(recurse=False)) if self.standardises else {}
        return build_pyg_module(self.network, self.shift, self.state_dict(), transform)

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def _make_shift(self, edge_index: Tensor, edge_weight: Tensor | None, n: int) -> Tensor:
        """D as a sparse tensor [n, n], from the adjacency as training makes it."""
        source, target = edge_index.detach().cpu().numpy()
        if edge_weight is None:
            weights = np.ones(len(source))
        else:
            weights = edge_weight.detach().reshape(-1).double().cpu().numpy()
        if len(weights) != len(source) or (len(source) and not 0 <= edge_index.min() <= edge_index.max() < n):
            raise GossamerError(
                f"expected edges between the vertices 0 to {n - 1} and one weight each, got {len(source)} edges and "
                f"{len(weights)} weights"
                + (f" between {int(edge_index.min())} and {int(edge_index.max())}" if len(source) else "")
            )
        kept = slice(None) if self.shift == GIVEN_SHIFT else source != target
        D = sparse.csr_array((weights[kept], (target[kept], source[kept])), shape=(n, n))
        if self.shift != GIVEN_SHIFT:
            if abs(D - D.T).max() > 1e-6 * abs(D).max():
                raise GossamerError(
                    "expected each edge in both directions with the same weight; use "
                    "torch_geometric.utils.to_undirected"
                )
            D = sparse.csr_array(make_shift(D, self.shift))
        entries = D.tocoo()
        positions = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
        values = torch.from_numpy(entries.data)
        return torch.sparse_coo_tensor(positions, values, (n, n), is_coalesced=True, check_invariants=False)


def make_module(
    network: Network,
    params: Mapping[str, Tensor],
    shift: str,
    transform: Transform | None = None,
    encoder: Params | None = None,
) -> GraphNetwork:
    """The module with one agent's weights, and of its encoder if there is one, copied, ready for evaluation."""
    features = None if encoder is None else len(encoder["layer.0.weight"])
    module = GraphNetwork(network, shift, features).to(next(iter(params.values())).dtype)
    module.load_state_dict(to_state_dict(network, params, encoder))
    if transform is not None:
        module.register_transform(transform)
    return module.eval()
