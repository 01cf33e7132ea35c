"""The graph convolutional network: shift operators, filters, layers and losses (Sec. II, III-E).

The code is organised as follows:
    shift      D from the data graph's adjacency
    filters    y = sum_p f_p(D) x_p: order 1, order P, Chebyshev
    product    x~_p = W_p^T x, each vertex with its own agent's weights; dense and sparse inputs
    network    layers and the whole architecture, as values
    losses     cross-entropy and squared error
    sparse     the sparse product that all of these use
"""

from gossamer.model.network import ACTIVATIONS, KINDS, Layer, Network, Params, make_network
from gossamer.model.shift import SHIFTS, make_shift

__all__ = ["ACTIVATIONS", "KINDS", "SHIFTS", "Layer", "Network", "Params", "make_network", "make_shift"]
