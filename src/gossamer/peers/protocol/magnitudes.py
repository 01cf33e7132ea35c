"""Bounds on the numbers that agents send and keep, beyond which no training works.

Every number is at most MAGNITUDE_LIMIT, but for sums of scores, which are in the units of the targets. From the second
consensus of an epoch on, a message's largest number is at most GROWTH_LIMIT times the largest of: what its sender sent
on this link before, what its receiver sends there now, and GROWTH_FLOOR. An agent checks what it sends against the same
bounds, without the receiver's part, and ends as diverged. So a message beyond the bounds does not come from an honest
agent. Masked numbers have no magnitude alone: their receiver bounds the sum (agents/consensus/masked.py).
"""

import math
from collections.abc import Iterable

from torch import Tensor

from gossamer.agents import Outbox, Phase
from gossamer.agents.measures import MAGNITUDE_LIMIT as MAGNITUDE_LIMIT
from gossamer.errors import DivergedError
from gossamer.peers.protocol.wire import RefusedError, max_magnitude

GROWTH_LIMIT = 1e6  # factor from one consensus to the next
GROWTH_FLOOR = 1e3  # smaller numbers count as if they were so large


def check_checkpoint(weights: Iterable[Tensor], statistics: Iterable[Tensor]) -> None:
    """Refuse to save weights beyond the bound, or statistics that are not finite: a restart would restore them."""
    sizes = [max_magnitude(part) for part in weights]
    if not all(math.isfinite(size) for size in (*sizes, *map(max_magnitude, statistics))):
        raise DivergedError("numbers that are not finite")
    if max(sizes, default=0.0) > MAGNITUDE_LIMIT:
        raise DivergedError(f"weights beyond {MAGNITUDE_LIMIT:.0e}")


class MagnitudeBounds:
    """The largest numbers of an epoch's consensus messages, by exchange and link, and the checks against them."""

    def __init__(self) -> None:
        self._sent: dict[tuple[int, int], float] = {}  # by exchange and receiver
        self._received: dict[tuple[int, int], float] = {}  # by exchange and sender
        self.greatest: tuple[float, int, str] = (0.0, -1, "")  # that arrived: its size, sender and phase

    def check_outgoing(self, exchange: Outbox, receiver: int, size: float) -> None:
        """Refuse to send what the receiver would refuse: the run has diverged."""
        if not math.isfinite(size):
            raise DivergedError("numbers that are not finite")
        if size > MAGNITUDE_LIMIT and exchange.phase is not Phase.SCORES:
            raise DivergedError(f"numbers beyond {MAGNITUDE_LIMIT:.0e}")
        if exchange.phase is Phase.CONSENSUS:
            key = exchange.index, receiver
            known = max(GROWTH_FLOOR, self._sent.get(key, size))
            if size > GROWTH_LIMIT * known:
                raise DivergedError(f"weights that grew from {known:.0e} to {size:.0e} in one consensus")
            self._sent[key] = size

    def check_incoming(self, exchange: Outbox, sender: int, size: float) -> None:
        """Refuse a message whose largest number is beyond the bounds."""
        if size > MAGNITUDE_LIMIT and exchange.phase is not Phase.SCORES:
            raise RefusedError("too large", f"{size:.1e} in a {exchange.phase} message")
        if exchange.phase is Phase.CONSENSUS:
            key = exchange.index, sender
            known = max(GROWTH_FLOOR, self._received.get(key, size), self._sent.get(key, 0.0))
            if size > GROWTH_LIMIT * known:
                raise RefusedError("too large", f"{size:.1e} in a consensus, after {known:.1e}")
            self._received[key] = size
        if exchange.phase is not Phase.SCORES:
            self.greatest = max(self.greatest, (size, sender, str(exchange.phase)))
