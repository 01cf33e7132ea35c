"""The engine seam: drives the generators of a run's hosts, and sums or gathers their arrays.

`engines` has one for a single process (simulation) and one for the ranks of a torch.distributed job (cluster).
"""

from collections.abc import Generator
from typing import Protocol, TypeVar

from torch import Tensor

from gossamer.agents import Inbox, Outbox
from gossamer.model import Params

_T = TypeVar("_T")


class Engine(Protocol):
    """One process's part in a run whose hosts move in lockstep."""

    @property
    def leads(self) -> bool:
        """True on the one process that reports to the user and writes files."""
        ...

    def run(self, generator: Generator[Outbox, Inbox, _T]) -> _T:
        """Drive this process's host through its exchanges."""
        ...

    def total(self, part: Tensor) -> Tensor:
        """The sum over all hosts, the same on each."""
        ...

    def gathered(self, parts: Params) -> Params:
        """All agents' arrays stacked in the agents' order, where the process leads; nothing elsewhere."""
        ...
