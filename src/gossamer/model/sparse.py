"""Sparse matrix times dense rows, the one kernel behind propagation and sparse features.

PyTorch's embedding_bag sums weighted rows of a table, which is a CSR product; on the CPU it is clearly
faster than the product of torch's CSR tensors and takes one thread a row, so that its bits are always the same.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


@dataclass(frozen=True)
class Pattern:
    """Positions of the entries of a CSR matrix [rows, columns]."""

    offsets: Tensor  # int32 [rows + 1]
    columns: Tensor  # int32 [entries]

    def times(self, values: Tensor | None, dense: Tensor) -> Tensor:
        """M x for M with these `values` [entries], or ones, and x [columns, ...]; the axes after the first go along."""
        if self.columns.numel() == 0 or dense.numel() == 0:
            return dense.new_zeros(self.offsets.numel() - 1, *dense.shape[1:])
        if dense.ndim == 2:
            return _product(self.columns, self.offsets, values, dense)
        return _product(self.columns, self.offsets, values, dense.reshape(dense.shape[0], -1)).view(
            -1, *dense.shape[1:]
        )

    def select(self, entries: Tensor) -> "Pattern":
        """The pattern of these entries alone, given by their positions in ascending order."""
        offsets = np.searchsorted(entries.numpy(), self.offsets.numpy()).astype(np.int32)
        return Pattern(torch.from_numpy(offsets), self.columns.index_select(0, entries))


@dataclass(frozen=True)
class Operator:
    """A fixed sparse matrix M, with M^T beside it so that nothing is transposed during training."""

    shape: tuple[int, int]
    pattern: Pattern
    values: Tensor
    transposed_pattern: Pattern
    transposed_values: Tensor

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.pattern.times(self.values, dense)

    def transposed_times(self, dense: Tensor) -> Tensor:
        """M^T g."""
        return self.transposed_pattern.times(self.transposed_values, dense)


def _product(columns: Tensor, offsets: Tensor, values: Tensor | None, table: Tensor) -> Tensor:
    # As torch.nn.functional.embedding_bag with mode="sum" and include_last_offset, without its checks, which take as
    # long as a small product.
    return torch.embedding_bag(table, columns, offsets, False, 0, False, values, True)[0]


def make_operator(matrix: Any, dtype: torch.dtype, transposed: Any = None) -> Operator:
    """An Operator from a scipy matrix and, if it is known, its transpose."""
    forward, backward = sparse.csr_array(matrix), sparse.csr_array(matrix.T if transposed is None else transposed)
    return Operator(
        forward.shape,
        make_pattern(forward),
        torch.from_numpy(forward.data).to(dtype),
        make_pattern(backward),
        torch.from_numpy(backward.data).to(dtype),
    )


def make_pattern(matrix: Any) -> Pattern:
    """The pattern of a scipy CSR matrix."""
    offsets, columns = (part.astype(np.int32, copy=False) for part in (matrix.indptr, matrix.indices))
    return Pattern(torch.from_numpy(offsets), torch.from_numpy(columns))
