"""Parameters of one agent in the protocol, and the interface of its persistent state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gossamer.peers.protocol.signatures import UNSIGNED, Signatures
from gossamer.peers.shards.membership import Membership


class RecoveryStore(Protocol):
    """Persistent state of an agent: it survives a crash, and is written before any message refers to it."""

    def epoch(self) -> int:
        """Return the number of the last epoch that the agent has opened; 0 before the first."""

    def set_epoch(self, epoch: int) -> None: ...

    def steps(self) -> Sequence[int]:
        """Return the steps that the agent can restore, ascending; step 0 is always among them, unless it has joined."""

    def discard(self, diverged: int, start: int) -> None:
        """Remove checkpoints that may have led to the divergence at a step of a training that began at `start`."""

    def is_done(self) -> bool:
        """Return whether the agent's result is on disk."""

    def set_done(self) -> None: ...

    def all_done(self) -> Sequence[bytes]:
        """Return the signed statements of all agents that they are done, if they were stored."""

    def set_all_done(self, statements: Sequence[bytes]) -> None: ...


@dataclass(frozen=True)
class ProtocolConfig:
    """Parameters of one agent in the protocol."""

    membership: Membership
    dtype: torch.dtype
    steps: int  # of the run; one more ends it
    keep: int  # checkpoints of an agent, at most
    incarnation: int  # a number that no earlier start of this agent had
    max_step_gap: int = 1  # steps that a neighbour can be ahead: those from one exchange with it to the next
    encrypted: bool = False  # encrypted links authenticate every byte, so that frames need no checksum
    signatures: Signatures = UNSIGNED
    joined: frozenset[int] = frozenset()  # agents that were no members at first, who may be unable to restore step 0
    first: int = 0  # the first step after planning, before which an agent can take over another's weights
    on_demand: bool = False  # steps begin when this agent is asked to, or a neighbour has begun: inference
