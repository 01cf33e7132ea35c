"""The graph convolutional network: shift operators, gathering, layers and losses (Sec. II, III-E).

The code is organised as follows:
    shift      D from the data graph's adjacency
    gather     filters y = sum_p f_p(D) x_p of order 1 and P, Chebyshev, PageRank; or edge by edge
    edge_sums  attention, gates and maxima over edges, in blocks
    layers     one equation, one file each, and the table that joins them by name
    product    x~_p = W_p^T x, each vertex with its own agent's weights; dense and sparse inputs
    selected_product  the same for features with many entries, by those that dropout keeps
    network    the architecture: layers one after the other
    encoder    a frozen first layer of a vertex's own features, rounded to 8 bits
    layer_options  options that a kind of layers has
    modules    a network as a plain PyTorch module, with PyTorch Geometric's names
    state_dicts  weights under these names, and back
    pyg_layers   layers and networks as PyTorch Geometric has them, described without it
    pyg_modules  a network as one of PyTorch Geometric's models
    pyg_reading  a network and its weights from such a model
    losses     cross-entropy and squared error
    sparse     the sparse product behind all of these
"""

from gossamer.model.layers import ACTIVATIONS, LAYERS, Layer
from gossamer.model.network import Network, Params, build_layers, make_network
from gossamer.model.shift import SHIFTS, make_shift

__all__ = [
    "ACTIVATIONS",
    "LAYERS",
    "SHIFTS",
    "Layer",
    "Network",
    "Params",
    "build_layers",
    "make_network",
    "make_shift",
]
