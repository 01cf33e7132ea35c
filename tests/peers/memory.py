"""A transport without a network: peers in threads of one process, for tests where sockets are not the point."""

import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field

QUEUE = 64  # messages that wait on a link


@dataclass
class Hub:
    """Bounded queues for the links between agents of this process; they last while a receiver is away."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    links: dict[tuple[int, int], deque[bytes]] = field(default_factory=dict)

    def open(self, agent: int, neighbours: Collection[int], largest: int) -> "InMemory":
        return InMemory(self, agent, frozenset(neighbours), largest)


class InMemory:
    """One agent's end."""

    def __init__(self, hub: Hub, agent: int, neighbours: frozenset[int], largest: int) -> None:
        self._hub, self._agent, self._neighbours, self._largest = hub, agent, neighbours, largest
        self.bytes_in: Counter[int] = Counter()
        self.bytes_out: Counter[int] = Counter()
        self.refused: Counter[str] = Counter()
        self.dropped = 0

    def send(self, neighbour: int, message: bytes) -> None:
        with self._hub.changed:
            waiting = self._hub.links.setdefault((self._agent, neighbour), deque())
            if len(waiting) < QUEUE:
                waiting.append(message)
                self.bytes_out[neighbour] += len(message)
                self._hub.changed.notify_all()
            else:
                self.dropped += 1

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        deadline = time.monotonic() + seconds
        with self._hub.changed:
            while not (found := self._taken()) and (left := deadline - time.monotonic()) > 0:
                self._hub.changed.wait(left)
            return found

    def watch(self, descriptor: int) -> None:
        """Nobody asks a peer that stays in this process."""

    def close(self) -> None:
        """Drop what has not been read, as a socket does."""
        with self._hub.changed:
            for _, waiting in self._incoming():
                waiting.clear()

    def _incoming(self) -> list[tuple[int, deque[bytes]]]:
        return [(z, waiting) for (z, k), waiting in self._hub.links.items() if k == self._agent]

    def _taken(self) -> list[tuple[int, memoryview]]:
        found = []
        for sender, waiting in self._incoming():
            while waiting:
                message = waiting.popleft()
                if sender not in self._neighbours:
                    self.refused["handshake"] += 1
                elif len(message) <= self._largest:
                    self.bytes_in[sender] += len(message)
                    found.append((sender, memoryview(message)))
        return found
