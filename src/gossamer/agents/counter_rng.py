"""Random numbers that depend on what they are for, never on who draws them or when.

Dropout is a hash of (seed, step, layer, vertex, column), initial weights are a stream of (seed, agent, layer) and the
order of time steps one of (seed, epoch), so that every hosting of the agents sees the same ones (Algorithm 1, line 1).
"""

import torch
from torch import Tensor

_WORD = (1 << 64) - 1


def key(*parts: int) -> int:
    """A 64-bit key of a few integers: splitmix64 over each in turn."""
    state = 0x243F6A8885A308D3
    for part in parts:
        state = (state ^ (part & _WORD)) + 0x9E3779B97F4A7C15 & _WORD
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _WORD
        state ^= state >> 31
    return state


def row_entropy(vertices: Tensor) -> Tensor:
    """A 32-bit word for each vertex, int32 [n]; a matrix entry's word is the sum of its row's and column's."""
    return _mix(vertices.to(torch.int32), 0x2545F491)


def column_entropy(columns: Tensor) -> Tensor:
    """A 32-bit word for each column (or time step), int32."""
    return _mix(columns.to(torch.int32), 0x1B873593)


def keep(entropy: Tensor, seed: int, step: int, layer: int, dropout: float) -> Tensor:
    """Marks what dropout keeps, bool, shaped as `entropy`: each entry with probability 1 - dropout."""
    threshold = round(dropout * 2**32) - 2**31
    return _mix(entropy, _signed(key(seed, step, layer) >> 32), _ROUNDS[1:]) >= threshold


def uniform(entropy: Tensor, *parts: int) -> Tensor:
    """Numbers in [0, 1) with 24 random bits, float64, shaped as `entropy`, for a use with this key."""
    words = _mix(entropy, _signed(key(*parts) >> 32))
    return (words >> 8 & 0xFFFFFF).double().mul_(2.0**-24)


def initial_normal(shape: tuple[int, ...], seed: int, agent: int, layer: int, *parameter: int) -> Tensor:
    """Standard normal numbers for one agent's layer, float64; its first parameter has no number."""
    stream = torch.Generator().manual_seed(key(seed, agent, layer, *parameter) >> 1)
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def drawn_order(count: int, seed: int, epoch: int) -> Tensor:
    """A random order of 0 ... count - 1 for one epoch, int64 [count]."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(key(seed, epoch) >> 1))


# xor-shift by so many bits (with the mask that makes the shift a logical one), then a multiplication
_ROUNDS = ((16, 0xFFFF, 0x7FEB352D), (15, 0x1FFFF, -0x7B935975))


def _mix(words: Tensor, salt: int, rounds: tuple[tuple[int, int, int], ...] = _ROUNDS) -> Tensor:
    """A hash modulo 2^32 whose upper bits are well mixed; one round is enough for words that are hashes already."""
    x = (words ^ salt).mul_(-0x61C88647)
    shifted = torch.empty_like(x)
    for shift, mask, factor in rounds:
        torch.bitwise_right_shift(x, shift, out=shifted)
        x.bitwise_xor_(shifted.bitwise_and_(mask)).mul_(factor)
    return x


def _signed(word: int) -> int:
    """A 32-bit word as a signed integer."""
    return word - 2**32 if word >= 2**31 else word
