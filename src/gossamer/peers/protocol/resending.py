"""Retransmission: frames held for each neighbour until it has left their step, and limits on sending them again.

A neighbour that misses a frame asks for it in a status once it has waited RESEND_INTERVAL. However often it asks, a
frame is sent again once in that interval, and replies to statuses come out of a token bucket. So the traffic that a
faulty or hostile neighbour can cause is bounded.
"""

from collections.abc import Iterable

from gossamer.peers.protocol.wire import Position, RefusedError

RESEND_INTERVAL = 1.0  # seconds between two retransmissions of a frame: the least that a neighbour waits before it asks
MIN_TIMEOUT, MAX_TIMEOUT = 1.0, 10.0  # seconds to wait for a message before it is requested
TIMEOUT_FACTOR = 4.0  # of the time that recent exchanges took: frames are lost only when a connection breaks
EXCHANGE_TIME_DECAY = 0.95  # of that time, by each faster exchange
REPLY_RATE, REPLY_BURST = 4.0, 64  # replies to a neighbour's statuses: a second, and at once


class ResendBuffer:
    """Frames that a neighbour may still ask for, by neighbour and position."""

    def __init__(self, neighbours: Iterable[int]) -> None:
        self._frames: dict[int, dict[Position, bytes]] = {z: {} for z in neighbours}
        self._resent_at: dict[int, dict[Position, float]] = {z: {} for z in self._frames}

    @property
    def largest(self) -> int:
        """Number of frames held for the neighbour with the most."""
        return max(map(len, self._frames.values()), default=0)

    def add(self, neighbour: int, position: Position, frame: bytes) -> None:
        self._frames[neighbour][position] = frame

    def release(self, neighbour: int, step: int) -> None:
        """Drop the frames of earlier steps: the neighbour has reached `step` and will not ask for them."""
        frames = self._frames[neighbour]
        for position in [p for p in frames if p[0] < step]:
            del frames[position]
            self._resent_at[neighbour].pop(position, None)

    def due(self, neighbour: int, missing: Position, now: float) -> list[bytes]:
        """The missing frame and those after it, without those that were sent again within RESEND_INTERVAL."""
        resent = self._resent_at[neighbour]
        due = [
            position
            for position in sorted(self._frames[neighbour])
            if position >= missing and (position not in resent or now >= resent[position] + RESEND_INTERVAL)
        ]
        resent.update(dict.fromkeys(due, now))
        return [self._frames[neighbour][position] for position in due]


class RequestTimeout:
    """Seconds to wait for a message before it is requested, by the time that recent exchanges took."""

    def __init__(self) -> None:
        self._exchange_time = 0.0  # an upper estimate

    def add_exchange(self, seconds: float, requests: int) -> None:
        """Take the time of an exchange into account, in which messages had to be requested so often."""
        if requests:  # the time includes waiting for retransmissions: let it raise the estimate, but slowly
            seconds = min(seconds, 2 * self._exchange_time + 0.1)
        self._exchange_time = max(EXCHANGE_TIME_DECAY * self._exchange_time, seconds)

    def after(self, requests: int) -> float:
        """Seconds to wait after so many requests; each doubles it."""
        return min(max(MIN_TIMEOUT, TIMEOUT_FACTOR * self._exchange_time) * 2.0**requests, MAX_TIMEOUT)


class TokenBucket:
    """Rate limit: `rate` tokens a second flow into a bucket that holds `capacity`, and every action takes one."""

    def __init__(self, now: float, rate: float, capacity: int) -> None:
        self._rate, self._capacity = rate, capacity
        self._tokens, self._filled_at = float(capacity), now

    def take(self, now: float) -> bool:
        """Take a token if there is one, and return whether there was."""
        elapsed = max(0.0, now - self._filled_at)
        self._tokens = min(self._capacity, self._tokens + self._rate * elapsed)
        self._filled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class ReplyLimits:
    """A token bucket for everyone who is replied to."""

    def __init__(self) -> None:
        self._buckets: dict[int | str, TokenBucket] = {}

    def take(self, source: int | str, what: str, now: float) -> None:
        """Refuse a message that asks too often for a reply."""
        if not self._buckets.setdefault(source, TokenBucket(now, REPLY_RATE, REPLY_BURST)).take(now):
            raise RefusedError("too often", what)
