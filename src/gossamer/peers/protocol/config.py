"""Parameters of one agent in the protocol, and the interface of its persistent state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gossamer.peers.protocol.signatures import UNSIGNED, Signatures
from gossamer.peers.shards.membership import Membership


class Store(Protocol):
    """Persistent state of an agent: it survives a crash, and is written before any message refers to it."""

    def epoch(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def steps(self) -> Sequence[int]: ...
    def discard(self, diverged: int, begun: int) -> None: ...
    def is_done(self) -> bool: ...
    def set_done(self) -> None: ...
    def all_done(self) -> Sequence[bytes]: ...
    def set_all_done(self, facts: Sequence[bytes]) -> None: ...


@dataclass(frozen=True)
class ProtocolConfig:
    """Parameters of one agent in the protocol."""

    membership: Membership
    dtype: torch.dtype
    steps: int  # of the run
    keep: int  # checkpoints of an agent, at most
    incarnation: int  # a number that no earlier start of this agent had
    max_step_gap: int = 1  # steps that a neighbour can be ahead: those from one exchange with it to the next
    encrypted: bool = False  # links that are encrypted guard every byte: no checksum is needed
    signatures: Signatures = UNSIGNED
