"""A network of convolutions with one agent's weights as a plain PyTorch module, and the names of its parameters.

Names and shapes are those of PyTorch Geometric's GCNConv and ChebConv in a list `convs`:

    a filter of one term         convs.0.lin.weight [out, in]                            gcn of order 1, mlp
    a filter of several terms    convs.0.lins.0.weight, convs.0.lins.1.weight, ...       chebyshev, polynomial
    bias                         convs.0.bias [out]

Before them there may be an encoder, `encoder.weight` and `encoder.bias` (model/encoder.py).

Ours are `layer.0.weight` [in, out] or [P + 1, in, out], and `layer.0.bias` [out].
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data.standardisation import Transform
from gossamer.errors import GossamerError
from gossamer.generators import drive
from gossamer.model.encoder import Encoder, to_encoder_state
from gossamer.model.gather import Chebyshev, Gather, Monomial
from gossamer.model.layers import ACTIVATIONS, Convolution
from gossamer.model.network import Network, Params
from gossamer.model.shift import make_shift

PygLayer = Literal["GCNConv", "ChebConv"]
GIVEN_SHIFT = "given"  # D itself is given to the module as edges and their weights


class GraphFilter(nn.Module):
    """activation(sum_p f_p(D) dropout(x) W_p + b), one layer (eq. (1), (25)-(26))."""

    def __init__(self, layer: Convolution) -> None:
        super().__init__()
        terms = len(layer.gather.powers)
        if terms == 1:
            self.lin = nn.Linear(layer.inputs, layer.outputs, bias=False)
        else:
            self.lins = nn.ModuleList(nn.Linear(layer.inputs, layer.outputs, bias=False) for _ in range(terms))
        self.bias = nn.Parameter(torch.zeros(layer.outputs)) if layer.bias else None
        self.gather, self.activation, self.dropout = layer.gather, layer.activation, layer.dropout

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        if self.training and self.dropout:
            x = functional.dropout(x, self.dropout)
        linear = [self.lin] if len(self.gather.powers) == 1 else list(self.lins)
        z = _combine(self.gather, [one(x) for one in linear], shift)
        return ACTIVATIONS[self.activation](z if self.bias is None else z + self.bias)


def _combine(gather: Gather, terms: list[Tensor], shift: Tensor) -> Tensor:
    """sum_p f_p(D) terms_p on all vertices."""
    every = torch.arange(len(terms[0]), device=terms[0].device)
    within = [every] * (gather.powers[-1] + 1)
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
        self.shift = shift
        self.encoder = None if features is None else Encoder(features, network.layers[0].inputs)
        self.standardises = self.restores = False
        self.convs = nn.ModuleList(GraphFilter(layer) for layer in require_convolutions(network))

    def register_transform(self, transform: Transform) -> None:
        """Standardise inputs, and restore outputs, in float64 whatever the weights have."""
        for name, part in transform.arrays().items():
            self.register_buffer(name, torch.from_numpy(part), persistent=False)
        self.standardises, self.restores = True, transform.target_scale is not None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Outputs [n(, time), outputs] of features x [n(, time), d] on the edges edge_index [2, edges].

        As in PyTorch Geometric, edge_index holds source and target of each edge in both directions, and edge_weight
        [edges] its weight, 1 without it. Self-loops are dropped: D has its own. With a given D the edges are D's
        entries: D_ij is the weight of the edge from j to i.
        """
        shift = self._make_shift(edge_index, edge_weight, len(x)).to(x.device, self._dtype)
        if self.standardises:
            x = ((x - self.feature_offset) / self.feature_scale).to(self._dtype)
        if self.encoder is not None:
            x = self.encoder(x)
        for layer in self.convs:
            x = layer(x, shift)
        return (x * self.target_scale + self.target_offset).to(self._dtype) if self.restores else x

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


def require_convolutions(network: Network) -> list[Convolution]:
    """The layers of a network, which must all be convolutions: others have no plain module."""
    layers = [layer for layer in network.layers if isinstance(layer, Convolution)]
    if len(layers) < len(network.layers):
        other = next(layer for layer in network.layers if not isinstance(layer, Convolution))
        raise GossamerError(
            f"only layers of the kinds gcn, polynomial, chebyshev, linear and mlp have a plain PyTorch module, got "
            f"{type(other).__name__}"
        )
    return layers


def find_pyg_layer(network: Network, shift: str) -> PygLayer | None:
    """Layer of PyTorch Geometric that computes the same with the same parameters, or None."""
    gathers = {layer.gather for layer in require_convolutions(network)}
    if shift == "normalized" and gathers == {Monomial((1,))}:
        return "GCNConv"
    if shift == "scaled-laplacian" and all(isinstance(one, Chebyshev) for one in gathers):
        return "ChebConv"
    return None


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


def to_state_dict(network: Network, params: Mapping[str, Tensor], encoder: Params | None = None) -> dict[str, Tensor]:
    """One agent's weights, and of its encoder if there is one, under the module's names."""
    state = {} if encoder is None else to_encoder_state(encoder)
    for index, layer in enumerate(require_convolutions(network)):
        weight = params[f"layer.{index}.weight"].detach()
        for name, part in zip(_weight_names(index, layer), weight.reshape(-1, *weight.shape[-2:]), strict=True):
            state[name] = part.T.contiguous()
        if layer.bias:
            state[f"convs.{index}.bias"] = params[f"layer.{index}.bias"].detach().clone()
    return state


def from_state_dict(network: Network, state: Mapping[str, Tensor], source: str) -> Params:
    """One agent's weights from those under the module's names, which must fit the network."""
    layers = require_convolutions(network)
    expected: dict[str, tuple[int, ...]] = {}
    for index, layer in enumerate(layers):
        expected |= dict.fromkeys(_weight_names(index, layer), (layer.outputs, layer.inputs))
        expected |= {f"convs.{index}.bias": (layer.outputs,)} if layer.bias else {}
    for what, names in (("has no", set(expected) - set(state)), ("has an unknown", set(state) - set(expected))):
        if names:
            raise GossamerError(
                f"{source} does not fit the network: it {what} {min(names)[:80]}; the settings want "
                f"{', '.join(f'{name} {list(shape)}' for name, shape in expected.items())}"
            )
    for name, shape in expected.items():
        if tuple(state[name].shape) != shape:
            raise GossamerError(
                f"{source} does not fit the network: {name} should be {list(shape)} (out, in), found "
                f"{list(state[name].shape)}; set --layers, --order, --hidden and --bias as its network has them"
            )
        if not (state[name].is_floating_point() and bool(state[name].isfinite().all())):
            raise GossamerError(f"{source}: {name} should hold finite real numbers")
    params: Params = {}
    for index, layer in enumerate(layers):
        parts = [state[name].detach().T for name in _weight_names(index, layer)]
        params[f"layer.{index}.weight"] = (parts[0] if len(parts) == 1 else torch.stack(parts)).contiguous()
        if layer.bias:
            params[f"layer.{index}.bias"] = state[f"convs.{index}.bias"].detach().clone()
    return params


def _weight_names(index: int, layer: Convolution) -> list[str]:
    terms = len(layer.gather.powers)
    return [f"convs.{index}.lin.weight"] if terms == 1 else [f"convs.{index}.lins.{p}.weight" for p in range(terms)]
