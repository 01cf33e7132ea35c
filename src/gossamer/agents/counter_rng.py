"""Counter-based random numbers: they depend on what they are for, never on who draws them or when.

Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3": a number is a hash of a key and a counter. Dropout
has the key (seed, step, layer) and the counter (vertex, column); initial weights are a stream of (seed, agent, layer)
and the order of time steps one of (seed, epoch). So every hosting of the agents sees the same numbers (Algorithm 1,
line 1). Numbers that others must not know have salts from a secret of their owner in place of the key (salts). Keys are
mixed by SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"), counters by the
32-bit hash lowbias32 (Wellons 2018, "Prospecting for hash functions"): both are fast, neither is cryptographic.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_MASK_64 = (1 << 64) - 1
_GOLDEN = -0x61C88647
SERIAL = 1 << 15  # numbers up to which PyTorch's operations take one thread, and NumPy's a third of their time
# Rounds of lowbias32: a xor-shift (with the mask that makes the shift a logical one), then a multiplication
_ROUNDS = ((16, 0xFFFF, 0x7FEB352D), (15, 0x1FFFF, -0x7B935975))


def derive_key(*parts: int) -> int:
    """A 64-bit key of a few integers: SplitMix64 over each in turn."""
    state = 0x243F6A8885A308D3
    for part in parts:
        state = (state ^ (part & _MASK_64)) + 0x9E3779B97F4A7C15 & _MASK_64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK_64
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK_64
        state ^= state >> 31
    return state


def hash_rows(vertices: Tensor) -> Tensor:
    """A 32-bit hash of each vertex, int32 [n]; the counter of a matrix entry is the sum of its row's and column's."""
    return _mix(vertices.to(torch.int32), 0x2545F491)


def hash_columns(columns: Tensor) -> Tensor:
    """A 32-bit hash of each column (or time step), int32."""
    return _mix(columns.to(torch.int32), 0x1B873593)


def draw_dropout_mask(
    counters: Tensor,
    seed: int,
    step: int,
    layer: int,
    dropout: float,
    out: Tensor | None = None,
    salts: Tensor | None = None,
) -> Tensor:
    """Mask of the entries that dropout keeps, shaped as `counters`: each with probability 1 - dropout.

    Bool, or 0 and 1 in the type of `out`. `salts` [2, ...] of the counters' rows take the key's place.
    """
    threshold = round(dropout * 2**32) - 2**31
    if salts is None:
        bits = _mix(counters, _signed(derive_key(seed, step, layer) >> 32), _ROUNDS[1:])
    else:
        bits = _mix_salted(counters, salts)
    if out is not None and out.dtype != torch.bool and out.numel() > SERIAL:
        return torch.ge(bits, threshold, out=out)
    kept = torch.empty(bits.shape, dtype=torch.bool) if out is None else out
    np.greater_equal(bits.numpy(), threshold, out=kept.numpy())  # several times as fast as torch's
    return kept


def draw_uniform(counters: Tensor, *key: int, salts: Tensor | None = None) -> Tensor:
    """Numbers in [0, 1) with 24 random bits, float64, shaped as `counters`. `salts` [2, ...] of the counters' rows take
    the key's place."""
    bits = _mix(counters, _signed(derive_key(*key) >> 32)) if salts is None else _mix_salted(counters, salts)
    return (bits >> 8 & 0xFFFFFF).double().mul_(2.0**-24)


def draw_normal(shape: tuple[int, ...], seed: int, agent: int, layer: int, *parameter: int) -> Tensor:
    """Standard normal numbers for one agent's layer, float64; its first parameter has no number."""
    stream = torch.Generator().manual_seed(derive_key(seed, agent, layer, *parameter) >> 1)
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def draw_order(count: int, seed: int, epoch: int) -> Tensor:
    """A random order of 0 ... count - 1 for one epoch, int64 [count]."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(derive_key(seed, epoch) >> 1))


def _mix(counters: Tensor, salt: int, rounds: tuple[tuple[int, int, int], ...] = _ROUNDS) -> Tensor:
    """A hash modulo 2^32 whose upper bits are well mixed; one round is enough for counters that are hashes already."""
    return _run_rounds(counters ^ salt, None, rounds)


def _mix_salted(counters: Tensor, salts: Tensor) -> Tensor:
    """The same hash with a salt of two words, one before the first multiplication and one after it."""
    return _run_rounds(counters ^ salts[0], salts[1], _ROUNDS)


def _run_rounds(x: Tensor, salt: Tensor | None, rounds: tuple[tuple[int, int, int], ...]) -> Tensor:
    """A multiplication, a second salt and rounds of lowbias32, in place."""
    small = x.numel() <= SERIAL
    words: Any = x.numpy() if small else x  # the operators mean the same to both
    words *= _GOLDEN
    if salt is not None:
        words ^= salt.numpy() if small else salt
    for shift, mask, factor in rounds:
        shifted = words >> shift
        shifted &= mask
        words ^= shifted
        words *= factor
    return x


def _signed(word: int) -> int:
    """A 32-bit word as a signed integer."""
    return word - 2**32 if word >= 2**31 else word
