"""Random-k: changes at random positions, the same for all agents, others for each array and step.

As in Koloskova, Stich and Jaggi (2019), "Decentralized stochastic optimization and gossip algorithms with compressed
communication". Both sides draw the positions, which therefore need not be sent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.consensus.codecs.codec import MatrixShape, count_kept


@dataclass(frozen=True)
class RandomK:
    fraction: float  # of the entries, above 0 and at most 1

    dtype = None
    bound_magnitude = None

    @property
    def stable_mixing_step(self) -> float:
        """p / (2 - p) where an entry is sent with probability p.

        The entry keeps for T steps, geometric, the value that it had: its disagreement along an eigenvector of C with
        eigenvalue 1 - mu is multiplied by 1 - gamma mu T. The mean square of that is below 1 for all mu < 2 up to
        gamma = p / (2 - p), and there least for mu = 1.
        """
        return self.fraction / (2 - self.fraction)

    def num_code_bytes(self, shape: MatrixShape, itemsize: int) -> int:
        return count_kept(self.fraction, shape[0] * shape[1]) * itemsize

    def check(self, size: int, dtype: torch.dtype) -> None:
        """Any array will do."""

    def compress(self, change: Tensor, key: int) -> Tensor:
        flat = change.flatten(1)
        return flat[:, self._positions(flat.shape[1], key)]

    def decompress(self, codes: Tensor, shape: MatrixShape, key: int, dtype: torch.dtype) -> Tensor:
        size = shape[0] * shape[1]
        return codes.new_zeros(len(codes), size).index_copy_(1, self._positions(size, key), codes)

    def _positions(self, size: int, key: int) -> Tensor:
        order = torch.randperm(size, generator=torch.Generator().manual_seed(key >> 1))
        return order[: count_kept(self.fraction, size)]
