"""Codec that sends every number as it is: CHOCO-Gossip with gamma 1 is then w_k = sum_z C_kz psi_z (eq. (16))."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.consensus.codecs.codec import MatrixShape


@dataclass(frozen=True)
class IdentityCodec:
    stable_mixing_step = 1.0
    dtype = None
    bound_magnitude = None

    def num_code_bytes(self, shape: MatrixShape, itemsize: int) -> int:
        return shape[0] * shape[1] * itemsize

    def check(self, size: int, dtype: torch.dtype) -> None:
        """Any array will do."""

    def compress(self, change: Tensor, key: int) -> Tensor:
        return change.flatten(1)

    def decompress(self, codes: Tensor, shape: MatrixShape, key: int, dtype: torch.dtype) -> Tensor:
        return codes
