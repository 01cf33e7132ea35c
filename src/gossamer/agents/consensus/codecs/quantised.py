"""Codec that rounds every number to few bits, with a scale for each row of an array (agents/quantisation)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.consensus.codecs.codec import MatrixShape
from gossamer.agents.quantisation import Quantiser


@dataclass(frozen=True)
class QuantisationCodec:
    """Quantisation leaves out less than a tenth of a row's largest change: gamma is 1."""

    quantiser: Quantiser

    stable_mixing_step = 1.0
    dtype = torch.uint8

    def num_code_bytes(self, shape: MatrixShape, itemsize: int) -> int:
        return shape[0] * self.quantiser.num_code_bytes(shape[1])

    def check(self, size: int, dtype: torch.dtype) -> None:
        """Any array will do."""

    def compress(self, change: Tensor, key: int) -> Tensor:
        return self.quantiser.encode(change).flatten(1)

    def decompress(self, codes: Tensor, shape: MatrixShape, key: int, dtype: torch.dtype) -> Tensor:
        return self.quantiser.decode(codes.reshape(len(codes), shape[0], -1), shape[1], dtype).flatten(1)

    def bound_magnitude(self, codes: Tensor, shape: MatrixShape) -> float:
        return self.quantiser.bound_magnitude(codes.view(-1, self.quantiser.num_code_bytes(shape[1])))
