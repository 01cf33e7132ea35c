"""What a peer asks of a network: messages between neighbours, each whole with its true sender, or not at all.

Messages may be lost, and a link keeps their order while its connection lasts. `sockets` is the one over ZeroMQ.
"""

from collections import Counter
from typing import Protocol


class Transport(Protocol):
    """One agent's connections to its neighbours."""

    @property
    def bytes_in(self) -> Counter[int]:
        """What has arrived, by neighbour."""

    @property
    def bytes_out(self) -> Counter[int]:
        """What was taken to be sent, by neighbour; what was dropped at once is not counted."""

    @property
    def refused(self) -> Counter[str]:
        """What was kept out before it was a message: "handshake" of who is no neighbour, for one."""

    @property
    def dropped(self) -> int:
        """Messages that too many others waited before."""

    def send(self, neighbour: int, message: bytes) -> None:
        """Hand a message over, or drop it if too many wait already; never wait."""

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        """What has arrived and from whom, waiting at most so long for a first message."""

    def close(self) -> None:
        """Leave, whatever has not been read; once more does nothing."""
