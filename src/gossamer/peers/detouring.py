"""A transport whose messages take detours where a link is down (protocol/detours.py)."""

import time
from collections import Counter
from collections.abc import Callable

from gossamer.peers.network.transport import Transport
from gossamer.peers.protocol.boxes import make_seals
from gossamer.peers.protocol.detours import Detours
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.wire import RefusedError
from gossamer.peers.shards.membership import Membership


class DetouringTransport:
    """A transport between the agents of a run that stay the same."""

    def __init__(
        self,
        transport: Transport,
        membership: Membership,
        signatures: Signatures,
        largest: int,
        on_refused: Callable[[int, RefusedError], None],
    ) -> None:
        """No message for this agent has more than `largest` bytes."""
        own = membership.agent
        seals = make_seals(signatures, own, membership.run)
        self._transport, self._on_refused = transport, on_refused
        self._detours = Detours(
            own,
            membership.num_agents,
            membership.neighbours,
            membership.run,
            seals,
            transport.send,
            time.monotonic(),
            largest,
        )
        self._refused = Counter[str]()

    @property
    def bytes_in(self) -> Counter[int]:
        return self._transport.bytes_in

    @property
    def bytes_out(self) -> Counter[int]:
        return self._transport.bytes_out

    @property
    def refused(self) -> Counter[str]:
        return self._transport.refused + self._refused

    @property
    def dropped(self) -> int:
        return self._transport.dropped

    @property
    def detours(self) -> dict[str, list[int]]:
        """The agents that messages for a neighbour go over, by neighbour."""
        return {str(z): list(detour.path[1:-1]) for z, detour in self._detours.detours.items()}

    def send(self, neighbour: int, message: bytes) -> None:
        self._detours.send(neighbour, message)

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        arrived = self._transport.receive(min(seconds, self._detours.wake_at - time.monotonic()))
        now, found = time.monotonic(), list[tuple[int, memoryview]]()
        for sender, message in arrived:
            try:
                taken = self._detours.receive(sender, message, now)
            except RefusedError as refused:
                self._refused[refused.reason] += 1
                self._on_refused(sender, refused)
            else:
                if taken is not None:
                    found.append(taken)
        self._detours.tick(now)
        return found

    def watch(self, descriptor: int) -> None:
        self._transport.watch(descriptor)

    def close(self) -> None:
        self._transport.close()
