"""Frames that are kept for neighbours until they have left the step, and how often something is sent again.

A neighbour that misses a frame says so after it has waited for a second at least: within that time a frame is sent
again once. Answers to statuses come out of an allowance that fills with time. So no number of requests costs more.
"""

from collections.abc import Iterable

from gossamer.peers.protocol.wire import Position

AGAIN = 1.0  # seconds between two times that a frame is sent again: the least that a neighbour waits before it asks
ANSWERS = (4.0, 64)  # answers to a neighbour's statuses: a second, and at once


class Kept:
    """The frames of all neighbours that may be asked for again."""

    def __init__(self, neighbours: Iterable[int]) -> None:
        self._frames: dict[int, dict[Position, bytes]] = {z: {} for z in neighbours}
        self._again: dict[int, dict[Position, float]] = {z: {} for z in self._frames}  # when it was last sent again

    @property
    def most(self) -> int:
        """Frames that are kept for one neighbour."""
        return max(map(len, self._frames.values()), default=0)

    def add(self, neighbour: int, position: Position, frame: bytes) -> None:
        self._frames[neighbour][position] = frame

    def release(self, neighbour: int, step: int) -> None:
        """The neighbour has reached a step: what belongs to earlier ones is not asked for again."""
        frames = self._frames[neighbour]
        for position in [p for p in frames if p[0] < step]:
            del frames[position]
            self._again[neighbour].pop(position, None)

    def again(self, neighbour: int, wanted: Position, now: float) -> list[bytes]:
        """The frame that a neighbour misses and those after it, without those that it has just been sent again."""
        sent = self._again[neighbour]
        due = [p for p in sorted(self._frames[neighbour]) if p >= wanted and now >= sent.get(p, now - AGAIN) + AGAIN]
        sent.update(dict.fromkeys(due, now))
        return [self._frames[neighbour][position] for position in due]


class Allowance:
    """How many answers may still be given; it fills with time, up to a number."""

    def __init__(self, now: float, most: int) -> None:
        self._most, self._left, self._since = most, float(most), now

    def take(self, now: float) -> bool:
        """Take one, if there is one."""
        self._left = min(self._most, self._left + ANSWERS[0] * max(0.0, now - self._since))
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
