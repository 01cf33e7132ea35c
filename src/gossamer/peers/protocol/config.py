"""Where an agent stands in the network, and what of it survives a crash."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gossamer.peers.protocol.signatures import UNSIGNED, Signatures


class Store(Protocol):
    """What survives a crash."""

    def epoch(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def steps(self) -> Sequence[int]: ...
    def discard(self, diverged: int, begun: int) -> None: ...
    def is_done(self) -> bool: ...
    def set_done(self) -> None: ...
    def all_done(self) -> Sequence[bytes]: ...
    def set_all_done(self, facts: Sequence[bytes]) -> None: ...


@dataclass(frozen=True)
class Place:
    """Where an agent stands in the network."""

    agent: int
    num_agents: int
    neighbours: tuple[int, ...]
    run: str  # the id of the run, the same for all
    dtype: torch.dtype
    steps: int  # of the run
    keep: int  # checkpoints of an agent, at most
    life: int  # a number that no earlier start of this agent had
    lead: int = 1  # steps that a neighbour can be ahead: those from one exchange with it to the next
    sealed: bool = False  # whether the links are encrypted, so that no byte changes on the way
    signatures: Signatures = UNSIGNED
