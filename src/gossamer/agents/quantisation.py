"""Quantisation to 16, 8 or 4 bits: integer multiples of a scale, one for each row (docs/communication.md).

Numbers are rounded to the nearest multiple or, with noise, stochastically: up or down so that the expectation is the
number, as in Alistarh et al. (2017), "QSGD: communication-efficient SGD via gradient quantization and encoding". The
codes of a row are its integers followed by one byte b for the scale 2^(b/4 - 32). Whatever bytes arrive, they stand for
finite numbers of at most the largest integer times the scale.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import DivergedError

INTEGER_TYPES = {16: torch.int16, 8: torch.int8}
NIBBLE_OFFSET = 8  # added to an integer of 4 bits, so that it is not negative


@dataclass(frozen=True)
class Quantiser:
    """Encoder of rows [..., width] as bytes [..., num_code_bytes(width)], and decoder."""

    bits: int  # 16, 8 or 4

    @property
    def max_integer(self) -> int:
        """Largest integer; the smallest is its negative."""
        return (1 << self.bits - 1) - 1

    def num_code_bytes(self, width: int) -> int:
        """Bytes of the codes of one row."""
        return (width * self.bits + 7) // 8 + 1

    def encode(self, rows: Tensor, noise: Tensor | None = None) -> Tensor:
        """Codes of the nearest multiples; with `noise`, uniform in [0, 1), of stochastically rounded ones.

        Numbers beyond the largest integer times the largest scale become that product.
        """
        largest = rows.abs().amax(-1, keepdim=True) if rows.shape[-1] else rows.new_zeros(*rows.shape[:-1], 1)
        if not torch.isfinite(largest).all():
            raise DivergedError("numbers that are not finite")
        exponent = (4 * torch.log2(largest / self.max_integer)).ceil().add_(128).clamp_(0, 255)
        # The logarithm may have been rounded down; then the next scale is the right one.
        exponent += (largest > self.max_integer * _scale(exponent)) & (exponent < 255)
        scaled = rows / _scale(exponent)
        integers = scaled.round() if noise is None else (scaled + noise).floor()
        integers.clamp_(-self.max_integer, self.max_integer)
        return torch.cat([self._pack(integers), exponent.to(torch.uint8)], dim=-1)

    def decode(self, codes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        return self._unpack(codes[..., :-1], width).to(dtype).mul_(self.scale(codes, dtype))

    def bound_magnitude(self, codes: Tensor) -> float:
        """Bound on the numbers that rows of codes stand for, by their scales alone."""
        return self.max_integer * float(_scale(codes[..., -1].max().double())) if codes.numel() else 0.0

    def scale(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        """Scale of each row [..., 1]. Rounding to the nearest errs by at most half of it."""
        return _scale(codes[..., -1:].to(dtype))

    def _pack(self, integers: Tensor) -> Tensor:
        if self.bits in INTEGER_TYPES:
            return integers.to(INTEGER_TYPES[self.bits]).contiguous().view(torch.uint8)
        even = torch.nn.functional.pad(integers, (0, integers.shape[-1] % 2))
        nibbles = even.add_(NIBBLE_OFFSET).to(torch.uint8)
        return nibbles[..., 0::2] | nibbles[..., 1::2] << 4

    def _unpack(self, codes: Tensor, width: int) -> Tensor:
        if self.bits in INTEGER_TYPES:
            flat = codes.clone(memory_format=torch.contiguous_format).view(-1).view(INTEGER_TYPES[self.bits])
            integers = flat.view(*codes.shape[:-1], width)
        else:
            nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
            integers = nibbles[..., :width].to(torch.int8) - NIBBLE_OFFSET
        # Two's complement has one negative integer more than `encode` uses, which a faulty sender may send.
        return integers.clamp_(min=-self.max_integer)


def _scale(exponent: Tensor) -> Tensor:
    """2^(b/4 - 32): from 2^-32 to 2^31.75 for a byte b."""
    return torch.exp2(exponent / 4 - 32)
