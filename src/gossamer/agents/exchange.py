"""What a host hands to its runtime and gets back: the border between arithmetic and I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from gossamer.agents.links import Link

Inbox = Mapping[Link, Tensor]


class Phase(StrEnum):
    """The three exchanges of Fig. 1, and those before them of sites that plan together."""

    FORWARD = "forward"
    BACKWARD = "backward"
    CONSENSUS = "consensus"
    PLANNING = "planning"


@dataclass(frozen=True)
class Outbox:
    """One exchange: what to send now, and which messages of which shapes to wait for."""

    phase: Phase
    index: int
    messages: Mapping[Link, Tensor]
    expected: Mapping[Link, tuple[int, ...]]
