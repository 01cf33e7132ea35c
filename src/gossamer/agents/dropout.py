"""Dropout of a layer's input (Algorithm 1, line 1): entries are zeroed with a probability, the others scaled up.

Large inputs go through in pieces that fit into the cache: the hash of `keyed` passes over each entry several times.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gossamer.agents.counter_rng import column_entropy, keep
from gossamer.model.product import rows_of

PIECE = 1 << 22  # numbers at once

Key = tuple[int, int, int]  # seed, step, layer


@dataclass(frozen=True)
class Drop:
    """Dropout of one layer's input in one step."""

    words: Tensor  # hashed: one for each row or entry of the input
    dropout: float
    of: Key

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows(, batch), width] or [entries] with dropout."""
        out: Tensor = _Dropped.apply(x, self.words, self.dropout, self.of)  # type: ignore[no-untyped-call]
        return out

    def rows(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Some rows of the same, made when they are needed instead of kept."""
        part = rows_of(x, rows), rows_of(self.words, rows)
        return Drop(part[1], self.dropout, self.of)(part[0])


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, words: Tensor, dropout: float, of: Key) -> Tensor:
        columns = _columns(x.shape[-1]) if x.ndim > 1 else None
        result = torch.empty_like(x)
        kept = torch.empty(x.shape, dtype=torch.bool) if ctx.needs_input_grad[0] else None
        for piece in _pieces(x):
            here = keep(words[piece] if columns is None else words[piece] + columns, *of, dropout)
            _scaled(x[piece], here, dropout, result[piece])
            if kept is not None:
                kept[piece] = here
        ctx.kept, ctx.dropout = kept, dropout
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (g,) = gradients
        result = torch.empty_like(g)
        for piece in _pieces(g):
            _scaled(g[piece], ctx.kept[piece], ctx.dropout, result[piece])
        return result, None, None, None


@lru_cache(maxsize=8)
def _columns(width: int) -> Tensor:
    return column_entropy(torch.arange(width))


def _scaled(x: Tensor, kept: Tensor, dropout: float, out: Tensor) -> None:
    torch.mul(x, kept.to(x.dtype).mul_(1.0 / (1.0 - dropout)), out=out)


def _pieces(x: Tensor) -> list[slice]:
    rows = max(1, PIECE // max(1, x[:1].numel()))
    return [slice(row, row + rows) for row in range(0, len(x), rows)]
