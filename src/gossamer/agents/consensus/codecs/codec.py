"""The consensus codec seam: what CHOCO-Gossip asks of a way to compress changes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MatrixShape = tuple[int, int]  # of one agent's array, d x h


class ConsensusCodec(Protocol):
    """A compression of the agents' changes [agents, d, h], array by array; one row of codes for each agent."""

    @property
    def stable_gamma(self) -> float:
        """A mixing step at which CHOCO-Gossip is stable with this codec."""
        ...

    @property
    def dtype(self) -> torch.dtype | None:
        """Of the codes; None: that of the arrays."""
        ...

    @property
    def largest(self) -> Callable[[Tensor, MatrixShape], float] | None:
        """Bound on the magnitude of the numbers that codes [agents, n] stand for; None: codes are the numbers."""
        ...

    def array_bytes(self, shape: MatrixShape, itemsize: int) -> int:
        """Bytes of one agent's codes."""
        ...

    def check(self, size: int, dtype: torch.dtype) -> None:
        """Refuse arrays of so many numbers if the codec cannot send them."""
        ...

    def compress(self, change: Tensor, key: int) -> Tensor:
        """Codes [agents, n] of the changes [agents, d, h]; `key` is for random numbers, the same at every agent."""
        ...

    def extract(self, codes: Tensor, shape: MatrixShape, key: int, dtype: torch.dtype) -> Tensor:
        """The changes [agents, d * h] that codes stand for."""
        ...


@dataclass(frozen=True)
class CodecKind:
    """An entry of the table of codecs: `name=value` is parsed to a codec."""

    parse: Callable[[str], ConsensusCodec]  # of the value; ValueError if it means nothing
    syntax: str  # of the value, for messages


def parse_fraction(value: str) -> float:
    """A number above 0 and at most 1."""
    if not 0 < float(value) <= 1:
        raise ValueError
    return float(value)


def num_kept(fraction: float, size: int) -> int:
    """Number of entries that top-k and random-k keep out of `size`."""
    return min(size, math.ceil(fraction * size))
