"""The row codec seam: what an exchange of boundary (halo) rows asks of a codec (docs/communication.md)."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class RowCodec(Protocol):
    """A way to send rows [rows(, time), width] between agents."""

    @property
    def protects(self) -> bool:
        """Evaluation and prediction go through the codec too, because what it keeps back must not leak there."""
        ...

    @property
    def dtype(self) -> torch.dtype | None:
        """Of the messages; None: that of the rows."""
        ...

    def row_bytes(self, width: int, itemsize: int) -> int:
        """Bytes of a row of `width` numbers as it is sent."""
        ...

    def encode(self, rows: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """Codes [rows(, time), length] to send; `uniform` draws numbers in [0, 1), shaped as the rows."""
        ...

    def decode(self, codes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """The rows that arrive."""
        ...

    def largest(self, codes: Tensor) -> float:
        """Bound on the magnitude of the numbers that a message stands for."""
        ...
