"""Outbox and inbox: messages that a host hands to its engine and gets back, without I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

from gossamer.agents.links import Link

Message = Tensor | tuple[Tensor, ...]  # or its parts in order, copied once where they are sent
Inbox = Mapping[Link, Tensor]


def join_parts(message: Message) -> Tensor:
    """A message as one tensor."""
    return message if isinstance(message, Tensor) else torch.cat([part.reshape(-1) for part in message])


class Phase(StrEnum):
    """The three exchanges of Fig. 1, those before them of sites that plan together, and sums over all agents: of
    scores, and of what the whole network is measured by (network_measures.py)."""

    FORWARD = "forward"
    BACKWARD = "backward"
    CONSENSUS = "consensus"
    PLANNING = "planning"
    SCORES = "scores"
    MEASURES = "measures"


@dataclass(frozen=True)
class Outbox:
    """One exchange: messages to send now, and the shapes of those to wait for."""

    phase: Phase
    index: int
    messages: Mapping[Link, Message]
    expected: Mapping[Link, tuple[int, ...]]
    dtype: torch.dtype | None = None  # of all messages of the exchange; None: the run's own
    # Bound on the magnitude of the numbers that a message of codes stands for; None: messages are the numbers
    bound_magnitude: Callable[[Tensor], float] | None = None
    # Shapes of messages between other agents that this one passes on (relays.py). None: endpoints have links, in this
    # exchange everywhere
    forwarded: Mapping[Link, tuple[int, ...]] | None = None
    # Routes of what an expected message brings of other agents, in a round of a relayed exchange
    relayed: Mapping[Link, Sequence[tuple[int, ...]]] = field(default_factory=dict)
