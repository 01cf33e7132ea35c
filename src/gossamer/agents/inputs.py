"""A layer's input on a host: its rows, dropout, and the product of every row with its own agent's weights."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gossamer.agents.dropout import Drop
from gossamer.array_types import Ints
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

    def rows(self, dropout: bool = True) -> Tensor:
        drop = self.drop if dropout else None
        if isinstance(self.product, SelectedProduct):
            return self.product.rows(None if drop is None else drop.keep)
        if isinstance(self.product, SparseProduct):
            return self.product.rows(self.x if drop is None else drop(self.x))
        x = self.x if drop is None else drop(self.x)
        return x.index_select(0, torch.from_numpy(self.input_row))

    def narrow(self, width: int) -> "LayerInput":
        if width == self.x.shape[-1]:
            return self
        if not isinstance(self.product, DenseProduct):
            raise AssertionError("only rows have columns to leave out")
        return replace(self, x=self.x[..., :width].contiguous())

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
