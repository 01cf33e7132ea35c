"""The engine seam: how a run drives its hosts' generators and joins what their agents know.

`engines` has one for a single process (simulation) and one for the ranks of a torch.distributed job (cluster).
"""

from collections.abc import Generator
from typing import Protocol, TypeVar

from torch import Tensor

from gossamer.agents import Inbox, Outbox
from gossamer.model import Params

T = TypeVar("T")


class Engine(Protocol):
    """One process's part in a run whose hosts move in step."""

    @property
    def leads(self) -> bool:
        """Whether this process tells the user and writes files; one of all does."""
        ...

    def run(self, generator: Generator[Outbox, Inbox, T]) -> T:
        """Drive this process's host through its exchanges."""
        ...

    def total(self, part: Tensor) -> Tensor:
        """The sum over all hosts, the same on each."""
        ...

    def gathered(self, parts: Params) -> Params:
        """All agents' arrays stacked in the agents' order, where the process leads; nothing elsewhere."""
        ...
