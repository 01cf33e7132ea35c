"""A transport, and answers to late agents, by the numbers of a membership instead of the agents' ids: for serving."""

from gossamer.peers.network.transport import Transport
from gossamer.peers.protocol.group import Group
from gossamer.peers.protocol.terms import Term
from gossamer.peers.protocol.wire import Buffer


class TermTransport:
    """A transport whose neighbours have the numbers of a membership; messages of others are dropped."""

    def __init__(self, transport: Transport, term: Term) -> None:
        self._transport, self._term = transport, term

    def send(self, neighbour: int, message: bytes) -> None:
        self._transport.send(self._term.ids[neighbour], message)

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        found = self._transport.receive(seconds)
        return [(self._term.ids.index(sender), message) for sender, message in found if sender in self._term.ids]

    def watch(self, descriptor: int) -> None:
        self._transport.watch(descriptor)


class LateAgents:
    """Answers messages of a finished run, by the numbers of its last membership."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def receive(self, sender: int, message: Buffer, now: float) -> None:
        self._group.receive(self._group.term.ids[sender], message, now)
