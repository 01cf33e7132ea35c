"""ZeroMQ between neighbours: one listening socket an agent, one outgoing connection a neighbour, CURVE on both.

Only the keys of neighbours complete the handshake; a message's sender is the agent whose key it came with, whatever
the message says. A message has one part. Queues, connections and what waits for a message's end are bounded, so that a
flood costs little; what does not fit is dropped, for the protocol asks again. A thread of its own follows connections
as they come and go, however long the local arithmetic takes. Nothing is expected over an outgoing connection, so that
next to nothing is taken from it.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.connections import BACK, Connections
from gossamer.peers.network.monitor import Watcher

SEALED = 256  # bytes that encryption may add to a part
QUEUE = 64  # messages that wait for a neighbour
UNREAD = 16  # messages of a neighbour that wait to be read; the others wait where they come from
COPIED = 1 << 16  # bytes from which on a message is sent from where it lies
NOW = int(zmq.NOBLOCK)  # a flag of an enum would be looked up with every message
KERNEL = 1 << 23  # bytes that may wait in the kernel, not yet seen by ZeroMQ
DOMAIN = b"gossamer"  # ZeroMQ asks who may come in; with a domain it lets nobody in when there is no answer
AGAIN = 1.0  # seconds after which a connection is made again that ZeroMQ has given up
# The kernel finds lost connections: ZeroMQ's own heartbeats abort the process when one is reset that it does not read
# from at that moment (github.com/zeromq/libzmq/issues/4364), which a neighbour can bring about.
ALIVE = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 2),
    (zmq.TCP_KEEPALIVE_INTVL, 2),
    (zmq.TCP_KEEPALIVE_CNT, 4),
    (zmq.TCP_MAXRT, 10_000),
)
FAILED: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "a key that is no neighbour's",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no CurveZMQ",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "left before its end",
}
INCOMING = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(FAILED)
OUTGOING = zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED
Refused = Callable[[int | str, str, str], None]  # an agent or an address, the reason, and a detail


def new_keys() -> tuple[str, str]:
    """A public and a secret key, Z85."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def public_of(secret: str) -> str:
    """The public key that belongs to a secret one."""
    try:
        return zmq.curve_public(secret.encode()).decode()
    except (ValueError, zmq.ZMQError) as error:
        raise GossamerError(f"this is not a secret key: {error}; make one with gossamer keys") from None


class _Guests:
    """Who may complete the handshake."""

    def __init__(self, keys: Mapping[str, int]) -> None:
        self.keys = keys

    def callback(self, domain: str, key: bytes) -> bool:
        return key.decode() in self.keys


class Sockets:
    """One agent's connections to its neighbours."""

    def __init__(
        self,
        agent: int,
        address: str,
        neighbours: Mapping[int, Contact],
        secret: str | None,
        largest: int,
        on_refused: Refused = lambda sender, reason, detail: None,
    ) -> None:
        """`largest` is the size in bytes of the largest message that may arrive; without a secret key the network
        is trusted, and anyone on it can pretend to be anyone. `on_refused` is called from two threads."""
        self.bytes_in: Counter[int] = Counter()
        self.bytes_out: Counter[int] = Counter()
        self.dropped = 0
        self.refused = Counter({"handshake": 0, "flood": 0, "sender": 0, "malformed": 0})
        self._on_refused = on_refused
        self._context = zmq.Context()
        self._senders = {contact.key: z for z, contact in neighbours.items() if contact.key is not None}
        self._secret = secret
        self._authenticator = None
        self._to: dict[int, Any] = {}
        self._addresses = {z: contact.address for z, contact in neighbours.items()}
        self._port = int(address.rpartition(":")[2])
        self._looked = time.monotonic()
        self._failed = ""  # why the handshake of the connection failed that is closed next
        self._given_up: dict[int, float] = {}  # since when a neighbour has no connection that ZeroMQ cares for
        self._lost: set[int] = set()  # neighbours to be connected again
        if secret is not None:
            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback(DOMAIN.decode(), _Guests(self._senders))
        self._listening = self._socket(zmq.ROUTER)
        self._listening.setsockopt(zmq.RCVHWM, UNREAD)
        self._listening.setsockopt(zmq.MAXMSGSIZE, largest + SEALED)
        if secret is not None:
            self._listening.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
            self._listening.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            self._listening.curve_server = True
            self._listening.curve_secretkey = secret.encode()
        else:
            self._listening.setsockopt(zmq.ROUTER_HANDOVER, 1)  # names are claimed: one that comes again is the same
        self._poller = zmq.Poller()
        self._poller.register(self._listening, zmq.POLLIN)
        share = (UNREAD + 1) * (largest + SEALED) + KERNEL
        self._connections = Connections(share, len(neighbours), secret is not None, self._on_shut)
        self._watcher = Watcher(self._context, self._look)
        self._watcher.follow(self._listening, INCOMING, self._on_incoming)
        try:
            for z, contact in neighbours.items():
                self._to[z] = self._outgoing(agent, contact)
                self._watcher.follow(self._to[z], OUTGOING, partial(self._on_outgoing, z))
            self._watcher.start()
            self._listening.bind(f"tcp://{address}")
            for z in neighbours:
                self._to[z].connect(f"tcp://{self._addresses[z]}")
        except zmq.ZMQError as error:
            self.close()
            raise GossamerError(
                f"agent {agent} cannot listen on {address}: {error}; free the port or change it"
            ) from None
        except GossamerError:
            self.close()
            raise

    def send(self, neighbour: int, message: bytes) -> None:
        """Hand a message over, or drop it if too many wait already."""
        try:
            self._to[neighbour].send(message, NOW, copy=len(message) < COPIED)
        except zmq.Again:
            self.dropped += 1
            return
        self.bytes_out[neighbour] += len(message)

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        """What has arrived, waiting at most so long for a first message."""
        if self._watcher.error is not None:
            raise self._watcher.error
        while self._lost:
            self._connect_again(self._lost.pop())
        arrived: list[tuple[int, memoryview]] = []
        if self._poller.poll(max(0, int(1000 * seconds))):
            for _ in range(QUEUE):
                try:
                    name = self._listening.recv(NOW)
                except zmq.Again:
                    break
                frame, sizes = self._read()
                sender = self._sender(name, frame)
                if sender is None:
                    continue
                self._connections.handed_over(frame.get(zmq.SRCFD), sender, sizes)
                self.bytes_in[sender] += sum(sizes)
                if len(sizes) == 1:
                    arrived.append((sender, frame.buffer))
                else:
                    self._refuse(sender, "malformed", f"{len(sizes)} parts")
        return arrived

    def close(self) -> None:
        self._watcher.stop()
        self._connections.close()
        for socket in (self._listening, *self._to.values()):
            socket.close(linger=500)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def _read(self) -> tuple[Any, list[int]]:
        """A message's last part, and the sizes of all; it should have one, and others are not kept."""
        sizes = []
        while True:
            frame = self._listening.recv(copy=False)
            sizes.append(len(frame))
            if not frame.more:
                return frame, sizes

    def _on_incoming(self, kind: int, number: int) -> None:
        if kind == zmq.EVENT_LISTENING:
            self._connections.listening(number)
        elif kind == zmq.EVENT_ACCEPTED:
            self._connections.accepted(number, self._port)
        elif kind in FAILED:
            self._failed = FAILED[kind]
        elif kind == zmq.EVENT_DISCONNECTED:
            found = self._connections.closed(number)
            if found is not None and (self._failed or not found[1]):
                self._refuse(found[0], "handshake", self._failed or "not a message before it left")
            self._failed = ""

    def _on_outgoing(self, neighbour: int, kind: int, number: int) -> None:
        if kind == zmq.EVENT_DISCONNECTED:
            self._connections.disconnected(neighbour)
            self._given_up[neighbour] = time.monotonic()
        else:
            self._given_up.pop(neighbour, None)
        if kind == zmq.EVENT_CONNECTED:
            port = int(self._addresses[neighbour].rpartition(":")[2])
            self._connections.connected(neighbour, number, port)

    def _look(self) -> None:
        now = time.monotonic()
        elapsed, self._looked = now - self._looked, now
        for neighbour in self._connections.look(elapsed):
            self._given_up.setdefault(neighbour, now)
        for neighbour, since in list(self._given_up.items()):
            if now > since + AGAIN:
                del self._given_up[neighbour]
                self._lost.add(neighbour)
                self._refuse(self._addresses[neighbour], "handshake", "no neighbour answers at a neighbour's address")

    def _on_shut(self, address: str, why: str) -> None:
        self._refuse(address, "flood", why)

    def _connect_again(self, neighbour: int) -> None:
        """ZeroMQ does not, once the other end has spoken what is not its protocol or was no neighbour."""
        self._connections.disconnected(neighbour)
        with contextlib.suppress(zmq.ZMQError):  # it may have forgotten the endpoint
            self._to[neighbour].disconnect(f"tcp://{self._addresses[neighbour]}")
        self._to[neighbour].connect(f"tcp://{self._addresses[neighbour]}")

    def _refuse(self, sender: int | str, reason: str, detail: str) -> None:
        self.refused[reason] += 1
        self._on_refused(sender, reason, detail)

    def _sender(self, claimed: bytes, frame: Any) -> int | None:
        if self._secret is not None:
            return self._senders.get(frame.get("User-Id"))
        if claimed.isdigit() and len(claimed) < 10 and int(claimed) in self._to:
            return int(claimed)
        self._refuse(frame.get("Peer-Address"), "sender", repr(claimed)[:40])
        return None

    def _outgoing(self, agent: int, contact: Contact) -> Any:
        if self._secret is not None and contact.key is None:
            raise GossamerError(f"there is no public key for {contact.address}; cut the shards with keys")
        socket = self._socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVHWM, 1)  # nothing is ever read from it
        socket.setsockopt(zmq.LINGER, 0)  # what waits for a connection that is given up would wait for ever
        socket.setsockopt(zmq.MAXMSGSIZE, BACK)
        if self._secret is not None and contact.key is not None:
            socket.curve_secretkey = self._secret.encode()
            socket.curve_publickey = public_of(self._secret).encode()
            socket.curve_serverkey = contact.key.encode()
        else:
            socket.setsockopt(zmq.ROUTING_ID, str(agent).encode())
        return socket

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        for option, value in (
            (zmq.SNDHWM, QUEUE),
            (zmq.RECONNECT_IVL, 50),
            (zmq.RECONNECT_IVL_MAX, 1000),
            (zmq.HANDSHAKE_IVL, 10000),
            (zmq.IPV6, 1),
            *ALIVE,
        ):
            socket.setsockopt(option, value)
        return socket
