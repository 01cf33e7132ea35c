"""Quantisation to 16, 8 or 4 bits: integer multiples of a scale that each row has for itself (docs/communication.md).

Rounded to the nearest or, with noise, stochastically: up or down so that the mean is the number, as in Alistarh et al.
(2017), "QSGD: communication-efficient SGD via gradient quantization and encoding". The codes of a row are its integers
followed by one byte for the scale, which is a quarter power of two: 2^(b/4 - 32). All codes stand for finite numbers,
so that nothing that arrives can be out of range.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import DivergedError

INTEGERS = {16: torch.int16, 8: torch.int8}


@dataclass(frozen=True)
class Quantiser:
    """Rows [..., width] to codes, bytes [..., length(width)], and back."""

    bits: int  # 16, 8 or 4

    @property
    def levels(self) -> int:
        """The largest integer; its negative is the smallest."""
        return (1 << self.bits - 1) - 1

    def length(self, width: int) -> int:
        """Bytes of a row's codes."""
        return (width * self.bits + 7) // 8 + 1

    def encode(self, rows: Tensor, noise: Tensor | None = None) -> Tensor:
        """Codes of the nearest multiples; with `noise`, uniform in [0, 1), of stochastically rounded ones."""
        largest = rows.abs().amax(-1, keepdim=True) if rows.shape[-1] else rows.new_zeros(*rows.shape[:-1], 1)
        if not torch.isfinite(largest).all():
            raise DivergedError("numbers that are not finite")
        power = (4 * torch.log2(largest / self.levels)).ceil().add_(128).clamp_(0, 255)
        # A scale that comes out too small by rounding is one power larger.
        power += (largest > self.levels * _scale(power)) & (power < 255)
        scaled = rows / _scale(power)
        whole = scaled.round() if noise is None else (scaled + noise).floor()
        whole.clamp_(-self.levels, self.levels)
        return torch.cat([self._packed(whole), power.to(torch.uint8)], dim=-1)

    def decode(self, codes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        return self._unpacked(codes[..., :-1], width).to(dtype).mul_(self.step(codes, dtype))

    def largest(self, codes: Tensor) -> float:
        """Bound on the numbers that rows of codes stand for, by their scales alone."""
        return self.levels * float(_scale(codes[..., -1].max().double())) if codes.numel() else 0.0

    def step(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        """Scale of each row [..., 1]: twice the largest error of the nearest codes."""
        return _scale(codes[..., -1:].to(dtype))

    def _packed(self, whole: Tensor) -> Tensor:
        if self.bits in INTEGERS:
            return whole.to(INTEGERS[self.bits]).contiguous().view(torch.uint8)
        nibbles = torch.nn.functional.pad(whole, (0, whole.shape[-1] % 2)).add_(8).to(torch.uint8)
        return nibbles[..., 0::2] | nibbles[..., 1::2] << 4

    def _unpacked(self, codes: Tensor, width: int) -> Tensor:
        if self.bits in INTEGERS:
            whole = codes.clone(memory_format=torch.contiguous_format).view(-1).view(INTEGERS[self.bits])
            return whole.view(*codes.shape[:-1], width)
        nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
        return nibbles[..., :width].to(torch.int8) - 8


def _scale(power: Tensor) -> Tensor:
    return torch.exp2(power / 4 - 32)
