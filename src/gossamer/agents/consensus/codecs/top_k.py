"""Top-k: the changes of largest magnitude, each with its position.

As in Stich, Cordonnier and Jaggi (2018), "Sparsified SGD with memory".
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.consensus.codecs.codec import MatrixShape, count_kept
from gossamer.errors import GossamerError

EXACT_IN_FLOAT32 = 2**24  # integers up to it


@dataclass(frozen=True)
class TopK:
    fraction: float  # of the entries, above 0 and at most 1

    dtype = None
    bound_magnitude = None

    @property
    def stable_mixing_step(self) -> float:
        """The largest changes bear nearly twice the step of random ones, by measurement; four times is unstable."""
        return 2 * self.fraction / (1 + self.fraction)

    def num_code_bytes(self, shape: MatrixShape, itemsize: int) -> int:
        return 2 * count_kept(self.fraction, shape[0] * shape[1]) * itemsize

    def check(self, size: int, dtype: torch.dtype) -> None:
        if dtype == torch.float32 and size > EXACT_IN_FLOAT32:
            raise GossamerError(
                f"choco:topk names places in float32, which is exact up to {EXACT_IN_FLOAT32} numbers, and an array "
                f"has {size}; take --dtype float64, or power"
            )

    def compress(self, change: Tensor, key: int) -> Tensor:
        """The values, then their positions as numbers of the same type."""
        flat = change.flatten(1)
        kept = count_kept(self.fraction, flat.shape[1])
        # NumPy's selection takes a sixth of the time of torch.topk.
        positions = torch.from_numpy(np.argpartition(flat.abs().numpy(), -kept, axis=1)[:, -kept:])
        return torch.cat([flat.gather(1, positions), positions.to(flat.dtype)], dim=1)

    def decompress(self, codes: Tensor, shape: MatrixShape, key: int, dtype: torch.dtype) -> Tensor:
        size = shape[0] * shape[1]
        values, positions = codes.chunk(2, dim=1)
        return codes.new_zeros(len(codes), size).scatter_(1, positions.long().clamp_(0, size - 1), values)
