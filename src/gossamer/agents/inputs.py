"""A layer's input on a host: its rows, dropout, and the product of every row with its own agent's weights."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.dropout import Drop
from gossamer.array_types import Ints
from gossamer.errors import GossamerError
from gossamer.model.product import DenseProduct, SparseProduct
from gossamer.model.selected_product import SelectedProduct


@dataclass(frozen=True)
class LayerInput:
    """The `Input` of the layer seam (model/layers)."""

    x: Tensor  # rows, or a sparse input's entries
    product: DenseProduct | SparseProduct | SelectedProduct
    drop: Drop | None
    input_row: Ints  # the row of x of each vertex (and power) that offers
    slab: Ints  # its agent and power: hosted agent * powers + position of the power
    powers: int
    first: bool  # a large input, which needs no gradient

    def linear(self, weight: Tensor) -> Tensor:
        slabs = weight.view(-1, *weight.shape[-2:])
        if isinstance(self.product, SelectedProduct):
            return self.product(slabs, None if self.drop is None else self.drop.keep)
        if self.drop is None:
            return self.product(self.x, slabs)
        if self.first and isinstance(self.product, DenseProduct):
            return self.product(self.x, slabs, self.drop.rows)
        return self.product(self.drop(self.x), slabs)

    def rows(self) -> Tensor:
        if isinstance(self.product, SelectedProduct):
            return self.product.rows(None if self.drop is None else self.drop.keep)
        if isinstance(self.product, SparseProduct):
            raise GossamerError(
                "this kind of layer needs its input row by row, and sparse features come only through a linear map; "
                "give dense features, or put another layer before it"
            )
        x = self.x if self.drop is None else self.drop(self.x)
        return x.index_select(0, torch.from_numpy(self.input_row))

    def square_norms(self) -> Tensor:
        """|x|^2 of each vertex that offers, without dropout."""
        if isinstance(self.product, SelectedProduct):
            return self.product.rows(None).square().sum(-1)
        if isinstance(self.product, SparseProduct):
            entries = torch.from_numpy(self.product.entry_row)
            return self.x.new_zeros(len(self.input_row)).index_add_(0, entries, self.x.square())
        return self.x.square().sum(-1).index_select(0, torch.from_numpy(self.input_row))

    def agent(self) -> Tensor:
        return torch.from_numpy(self.slab // self.powers)
