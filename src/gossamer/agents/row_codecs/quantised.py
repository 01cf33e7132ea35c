"""Stochastic quantisation of rows: each number goes up or down at random so that its mean is kept.

As QSGD of Alistarh et al. (2017), "QSGD: communication-efficient SGD via gradient quantization and encoding", with a
scale for each row (agents/quantisation).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.quantisation import Quantiser


@dataclass(frozen=True)
class StochasticQuantisation:
    """Unbiased; while training only, for evaluation has nothing to gain by it."""

    quantiser: Quantiser

    protects = False
    dtype = torch.uint8

    def row_bytes(self, width: int, itemsize: int) -> int:
        return self.quantiser.num_code_bytes(width)

    def encode(self, rows: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        return self.quantiser.encode(rows, uniform())

    def decode(self, codes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        return self.quantiser.decode(codes, width, dtype)

    def bound_magnitude(self, codes: Tensor) -> float:
        return self.quantiser.bound_magnitude(codes)
