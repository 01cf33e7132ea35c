"""A layer's input on a host: its rows, dropout, and the product of every row with its own agent's weights."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.dropout import Drop
from gossamer.array_types import Ints
from gossamer.model.product import DenseProduct
from gossamer.model.sparse_product import SparseProduct


@dataclass(frozen=True)
class LayerInput:
    """The `Input` of the layer seam (model/layers)."""

    x: Tensor  # rows, or a sparse input's entries
    product: DenseProduct | SparseProduct
    drop: Drop | None
    input_row: Ints  # the row of x of each vertex (and power) that offers
    slab: Ints  # its agent and power: hosted agent * powers + position of the power
    powers: int
    first: bool  # a large input, which needs no gradient

    def linear(self, weight: Tensor) -> Tensor:
        slabs, drop = weight.view(-1, *weight.shape[-2:]), self.drop
        if isinstance(self.product, SparseProduct):
            return self.product(slabs, None if drop is None else drop.keep)
        if drop is None:
            return self.product(self.x, slabs)
        return self.product(self.x, slabs, drop.rows) if self.first else self.product(drop(self.x), slabs)

    def rows(self) -> Tensor:
        if isinstance(self.product, SparseProduct):
            return self.product.rows(None if self.drop is None else self.drop.keep)
        x = self.x if self.drop is None else self.drop(self.x)
        return x.index_select(0, torch.from_numpy(self.input_row))

    def agent(self) -> Tensor:
        return torch.from_numpy(self.slab // self.powers)
