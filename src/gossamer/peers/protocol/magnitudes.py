"""Bounds on the numbers that agents send each other and keep, beyond which no training works.

Every number is at most LARGEST. From the second consensus of an epoch on, a message's largest number is at most JUMP
times the largest of: what its sender sent on this link before, what its receiver sends there now, and FLOOR. An agent
holds what it sends against the same bounds, without the receiver's part, and ends as diverged: so whoever sends more is
no honest agent.
"""

import math
from collections.abc import Iterable

from torch import Tensor

from gossamer.agents import Outbox, Phase
from gossamer.errors import DivergedError
from gossamer.peers.protocol.wire import RefusedError, largest

LARGEST = 1e12  # of every number: in float32 the sum of a million squares is finite
JUMP = 1e6  # from one consensus to the next
FLOOR = 1e3  # numbers below it count as if they were so large


def check_kept(weights: Iterable[Tensor], statistics: Iterable[Tensor]) -> None:
    """Refuse to keep weights beyond the bound, or statistics that are not finite: they would bring it back."""
    sizes = [largest(part) for part in weights]
    if not all(math.isfinite(size) for size in (*sizes, *map(largest, statistics))):
        raise DivergedError("numbers that are not finite")
    if max(sizes, default=0.0) > LARGEST:
        raise DivergedError(f"weights beyond {LARGEST:.0e}")


class Magnitudes:
    """The largest numbers of an epoch's consensus, by exchange and link."""

    def __init__(self) -> None:
        self._sent: dict[tuple[int, int], float] = {}  # by exchange and receiver
        self._received: dict[tuple[int, int], float] = {}  # by exchange and sender
        self.greatest: tuple[float, int, str] = (0.0, -1, "")  # that arrived: its size, sender and phase

    def check_own(self, exchange: Outbox, receiver: int, size: float) -> None:
        """Refuse to send what the receiver would refuse: the run has diverged."""
        if not math.isfinite(size):
            raise DivergedError("numbers that are not finite")
        if size > LARGEST:
            raise DivergedError(f"numbers beyond {LARGEST:.0e}")
        if exchange.phase is Phase.CONSENSUS:
            of = exchange.index, receiver
            known = max(FLOOR, self._sent.get(of, size))
            if size > JUMP * known:
                raise DivergedError(f"weights that grew from {known:.0e} to {size:.0e} in one consensus")
            self._sent[of] = size

    def check(self, exchange: Outbox, sender: int, size: float) -> None:
        """Refuse a message that is too large, for what is known of its sender or at all."""
        if size > LARGEST:
            raise RefusedError("too large", f"{size:.1e} in a {exchange.phase} message")
        if exchange.phase is Phase.CONSENSUS:
            of = exchange.index, sender
            known = max(FLOOR, self._received.get(of, size), self._sent.get(of, 0.0))
            if size > JUMP * known:
                raise RefusedError("too large", f"{size:.1e} in a consensus, after {known:.1e}")
            self._received[of] = size
        self.greatest = max(self.greatest, (size, sender, str(exchange.phase)))
