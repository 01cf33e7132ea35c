"""Interface of a transport: messages between neighbours, each complete and with its true sender, or not at all.

Messages may be lost; a link keeps their order while its connection lasts. `sockets` is the transport over ZeroMQ.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from gossamer.peers.network.addresses import Contact


class Transport(Protocol):
    """One agent's connections to its neighbours."""

    @property
    def bytes_in(self) -> Counter[int]:
        """Bytes received, by neighbour."""

    @property
    def bytes_out(self) -> Counter[int]:
        """Bytes queued to be sent, by neighbour; without dropped messages."""

    @property
    def refused(self) -> Counter[str]:
        """Connections and messages refused by the transport, by reason: "handshake", for one."""

    @property
    def dropped(self) -> int:
        """Messages dropped because the queue was full."""

    def send(self, neighbour: int, message: bytes) -> None:
        """Queue a message, or drop it if the queue is full; never block."""

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        """Return messages with their senders; wait at most so long for a first one."""

    def watch(self, descriptor: int) -> None:
        """Let `receive` return when this file descriptor can be read, too."""

    def close(self) -> None:
        """Close all connections, whatever has not been read; a second call does nothing."""


@runtime_checkable
class OpenTransport(Transport, Protocol):
    """A transport whose neighbours may change."""

    def admit(self, keys: Iterable[str]) -> None:
        """Let agents with these CURVE keys connect, too, and no others that were admitted before."""

    def add_neighbour(self, neighbour: int, contact: Contact) -> None:
        """Connect to a new neighbour, or to one whose address or key has changed."""

    def take_requests(self) -> list[tuple[str, memoryview]]:
        """Return the messages of agents that are admitted and no neighbours, with their keys."""
