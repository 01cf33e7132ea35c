"""The consensus codec seam: the interface of CHOCO-Gossip's compression operators.

Koloskova, Stich and Jaggi (2019), "Decentralized stochastic optimization and gossip algorithms with compressed
communication".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

MatrixShape = tuple[int, int]  # of one agent's array, d x h


class ConsensusCodec(Protocol):
    """A compression operator, applied to one array of parameters at a time.

    A change is the difference between an agent's array and the public copy of it that the agent's neighbours know.
    """

    @property
    def stable_mixing_step(self) -> float:
        """Default of the mixing step (gamma of CHOCO-Gossip): one at which the method is stable with this codec."""
        ...

    @property
    def dtype(self) -> torch.dtype | None:
        """Data type of the codes; None: that of the arrays."""
        ...

    @property
    def bound_magnitude(self) -> Callable[[Tensor, MatrixShape], float] | None:
        """Function of codes [agents, n] and an array's shape: a bound on the numbers that they stand for.

        None: the codes are the numbers.
        """
        ...

    def num_code_bytes(self, shape: MatrixShape, itemsize: int) -> int:
        """Bytes of one agent's codes."""
        ...

    def check(self, size: int, dtype: torch.dtype) -> None:
        """Refuse arrays of `size` numbers of this type if the codec cannot send them."""
        ...

    def compress(self, change: Tensor, key: int) -> Tensor:
        """Codes [agents, n] of changes [agents, d, h]. `key` seeds random choices, at sender and receivers alike."""
        ...

    def decompress(self, codes: Tensor, shape: MatrixShape, key: int, dtype: torch.dtype) -> Tensor:
        """The changes that codes stand for, flattened to [agents, d * h]."""
        ...


@dataclass(frozen=True)
class CodecKind:
    """An entry of the table of codecs: `name=value` is parsed to a codec."""

    parse: Callable[[str], ConsensusCodec]  # takes the value; raises ValueError if it is not allowed
    syntax: str  # of the value, for messages


def parse_fraction(value: str) -> float:
    """Parse a number above 0 and at most 1, or raise ValueError."""
    if not 0 < float(value) <= 1:
        raise ValueError
    return float(value)


def count_kept(fraction: float, size: int) -> int:
    """Number of entries that top-k and random-k keep out of `size`."""
    return min(size, math.ceil(fraction * size))
