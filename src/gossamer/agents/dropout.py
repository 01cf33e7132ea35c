"""Dropout of a layer's input (Algorithm 1, line 1): entries are zeroed with a probability, the others scaled up.

Srivastava et al. (2014), "Dropout: a simple way to prevent neural networks from overfitting". Large inputs go through
in pieces that fit into the cache: the hash behind the random numbers passes over each entry several times.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.counter_rng import SERIAL, draw_dropout_mask, hash_columns
from gossamer.agents.salts import RowSalts
from gossamer.model.product import select_rows
from gossamer.model.selected_product import Kept

PIECE = 1 << 18  # numbers at once for each thread: a megabyte

DropoutKey = tuple[int, int, int]  # seed, step, layer


@dataclass(frozen=True)
class Drop:
    """Dropout of one layer's input in one step."""

    counters: Tensor  # one for each row or entry of the input
    dropout: float
    key: DropoutKey
    salts: RowSalts | None = None  # of the counters, by a secret of their owner; None: by the key alone

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows(, batch), width] or [entries] with dropout."""
        if not x.requires_grad:
            return self.draw(x, None)
        out: Tensor = _Dropout.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def draw(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The same without a gradient; fills `mask`, bool and shaped as x, if it is given."""
        columns = _column_hashes(x.shape[-1]) if x.ndim > 1 else None
        result = torch.empty_like(x)
        for piece in _pieces(x):
            here = self.counters[piece] if columns is None else self.counters[piece] + columns
            # Drawn in the type of x where no gradient needs the mask: converting it takes as long as half the hash.
            kept = torch.empty_like(x[piece]) if mask is None else mask[piece]
            own = None if self.salts is None else self.salts.select(piece)
            _scale(x[piece], draw_dropout_mask(here, *self.key, self.dropout, kept, own), self.dropout, result[piece])
        return result

    def rows(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Some rows of the same, made when they are needed instead of kept."""
        salts = self.salts and self.salts._replace(row=select_rows(self.salts.row, rows))
        return Drop(select_rows(self.counters, rows), self.dropout, self.key, salts)(select_rows(x, rows))

    def keep(self, order: int) -> Kept:
        """The entries of a sparse input that are left, in one of its two orders."""
        counters = self.counters[order]
        own = self.salts and self.salts._replace(row=self.salts.row[order])
        mask = np.empty(len(counters), dtype=bool)
        for piece in _pieces(counters):
            salts = None if own is None else own.select(piece)
            draw_dropout_mask(counters[piece], *self.key, self.dropout, torch.from_numpy(mask[piece]), salts)
        return Kept(torch.from_numpy(np.flatnonzero(mask)), 1.0 / (1.0 - self.dropout))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: Drop) -> Tensor:
        ctx.mask, ctx.dropout = torch.empty(x.shape, dtype=torch.bool), drop.dropout
        return drop.draw(x, ctx.mask)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (g,) = gradients
        result = torch.empty_like(g)
        for piece in _pieces(g):
            _scale(g[piece], ctx.mask[piece], ctx.dropout, result[piece])
        return result, None


@lru_cache(maxsize=8)
def _column_hashes(width: int) -> Tensor:
    return hash_columns(torch.arange(width))


def _scale(x: Tensor, mask: Tensor, dropout: float, out: Tensor) -> None:
    scale = 1.0 / (1.0 - dropout)
    if x.numel() > SERIAL:
        torch.mul(x, mask.to(x.dtype).mul_(scale), out=out)
        return
    numbers = x.numpy(force=True)
    np.multiply(numbers, np.multiply(mask.numpy(), scale, dtype=numbers.dtype), out=out.numpy())


def _pieces(x: Tensor) -> list[slice]:
    rows = max(1, PIECE * torch.get_num_threads() * len(x) // max(1, x.numel()))
    return [slice(row, row + rows) for row in range(0, len(x), rows)]
