"""The row codec seam: the interface between an exchange of boundary (halo) rows and a codec (docs/communication.md)."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class RowCodec(Protocol):
    """A way to send rows [rows(, time), width] between agents."""

    @property
    def protects(self) -> bool:
        """Whether evaluation and prediction go through the codec too, because what it hides must not leak there."""
        ...

    @property
    def dtype(self) -> torch.dtype | None:
        """Data type of the messages; None: that of the rows."""
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

    def bound_magnitude(self, codes: Tensor) -> float:
        """Bound on the magnitude of the numbers that a message stands for."""
        ...
