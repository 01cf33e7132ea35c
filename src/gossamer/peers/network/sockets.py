"""The transport over ZeroMQ: an agent has one listener, and one outgoing connection to each neighbour.

Links are encrypted and authenticated by CurveZMQ (Hintjens 2013, ZeroMQ RFC 26/CURVEZMQ), on the elliptic curve of
Bernstein 2006, "Curve25519: new Diffie-Hellman speed records". The listener's allow-list holds the keys of the
neighbours: nobody else completes the handshake. The sender of a message is the agent whose key its connection has
proved, whatever the message claims.

A message has one part. Queues, connections and incomplete messages are bounded, so that a flood costs little; what does
not fit is dropped, and the protocol requests it again. A thread of its own follows connections as they come and go,
however long the local arithmetic takes. Messages arrive over the listener only; an outgoing connection that brings
more than a handshake is closed.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.connections import MAX_REPLY_BYTES, Connections
from gossamer.peers.network.curve import AllowList, derive_public_key
from gossamer.peers.network.monitor import (
    HANDSHAKE_FAILURES,
    INCOMING_EVENTS,
    OUTGOING_EVENTS,
    ConnectionMonitor,
)
from gossamer.peers.network.socket_options import SEND_QUEUE, make_socket

MESSAGE_MARGIN = 256  # bytes that a message may exceed its limit by, for encryption
RECEIVE_QUEUE = 16  # messages of a neighbour that wait to be read; more cause back-pressure
ZERO_COPY_BYTES = 1 << 16  # from which on a message is sent without a copy
_NOBLOCK = int(zmq.NOBLOCK)  # a flag of an enum would be looked up with every message
KERNEL_BUFFER = 1 << 23  # bytes that the kernel may hold of a connection, not yet read by ZeroMQ
AUTH_DOMAIN = b"gossamer"  # of ZeroMQ's authentication: with a domain, nobody is let in when it does not answer
RECONNECT_AFTER = 1.0  # seconds after which a connection that ZeroMQ has given up is made again
NOT_ADMITTED = "the neighbour there does not admit this agent's key"
NO_NEIGHBOUR = "no neighbour answers at a neighbour's address"
OnRefused = Callable[[int | str, str, str], None]  # takes an agent or an address, the reason, and a detail


class Sockets:
    """One agent's connections to its neighbours."""

    def __init__(
        self,
        agent: int,
        address: str,
        neighbours: Mapping[int, Contact],
        secret: str | None,
        largest: int,
        on_refused: OnRefused = lambda sender, reason, detail: None,
        spare: int = 0,
    ) -> None:
        """`largest` is the size in bytes of the largest message that may arrive. Without a secret key the network is
        trusted, and anyone on it can claim to be any agent. `on_refused` is called from two threads. With `spare`, so
        many agents that are no neighbours yet may connect, too."""
        self.bytes_in: Counter[int] = Counter()
        self.bytes_out: Counter[int] = Counter()
        self.dropped = 0
        self.refused = Counter({"handshake": 0, "flood": 0, "sender": 0, "malformed": 0})
        self._on_refused = on_refused
        self._context = zmq.Context()
        self._senders = {contact.key: z for z, contact in neighbours.items() if contact.key is not None}
        self._secret = secret
        self._authenticator = None
        self._outgoing: dict[int, Any] = {}
        self._agent, self._takes_strangers = agent, spare > 0
        self._requests: list[tuple[str, memoryview]] = []
        self._allowed = AllowList(self._senders)
        self._addresses = {z: contact.address for z, contact in neighbours.items()}
        self._keys = {z: contact.key for z, contact in neighbours.items()}
        self._port = int(address.rpartition(":")[2])
        self._enforced_at = time.monotonic()
        self._handshake_failure = ""  # of the connection that is closed next
        self._broken_since: dict[int, float] = {}  # neighbours without a connection that ZeroMQ maintains
        self._shut_out: set[int] = set()  # neighbours that do not admit this agent's key
        self._to_reconnect: set[int] = set()
        if secret is not None:
            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback(AUTH_DOMAIN.decode(), self._allowed)
        self._listener = make_socket(self._context, zmq.ROUTER)
        self._listener.setsockopt(zmq.RCVHWM, RECEIVE_QUEUE)
        self._listener.setsockopt(zmq.MAXMSGSIZE, largest + MESSAGE_MARGIN)
        if secret is not None:
            self._listener.setsockopt(zmq.ZAP_DOMAIN, AUTH_DOMAIN)
            self._listener.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            self._listener.curve_server = True
            self._listener.curve_secretkey = secret.encode()
        else:
            self._listener.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a routing id that comes again is the same agent's
        self._poller = zmq.Poller()
        self._poller.register(self._listener, zmq.POLLIN)
        max_held = (RECEIVE_QUEUE + 1) * (largest + MESSAGE_MARGIN) + KERNEL_BUFFER
        self._connections = Connections(max_held, len(neighbours) + spare, secret is not None, self._on_shutdown)
        self._monitor = ConnectionMonitor(self._context, self._enforce_limits)
        self._monitor.follow(self._listener, INCOMING_EVENTS, self._on_incoming)
        try:
            for z, contact in neighbours.items():
                self._prepare_outgoing(z, contact)
            self._monitor.start()
            self._listener.bind(f"tcp://{address}")
            for z in neighbours:
                self._outgoing[z].connect(f"tcp://{self._addresses[z]}")
        except zmq.ZMQError as error:
            self.close()
            raise GossamerError(
                f"agent {agent} cannot listen on {address}: {error}; free the port or change it"
            ) from None
        except GossamerError:
            self.close()
            raise

    def send(self, neighbour: int, message: bytes) -> None:
        """Queue a message, or drop it if the queue is full."""
        try:
            self._outgoing[neighbour].send(message, _NOBLOCK, copy=len(message) < ZERO_COPY_BYTES)
        except (zmq.Again, KeyError):  # its queue is full, or it is no neighbour any more
            self.dropped += 1
            return
        self.bytes_out[neighbour] += len(message)

    def admit(self, keys: Iterable[str]) -> None:
        """Let agents with these keys connect as well, and no others that were admitted before."""
        self._allowed.admitted = frozenset(keys)

    def add_neighbour(self, neighbour: int, contact: Contact) -> None:
        """Connect to a new neighbour, or to one whose address or key has changed."""
        before = self._addresses.get(neighbour)
        if (before, self._keys.get(neighbour)) == (contact.address, contact.key):
            return
        if neighbour not in self._outgoing:
            self._prepare_outgoing(neighbour, contact)
        socket = self._outgoing[neighbour]
        if before is not None:
            self._connections.on_disconnected(neighbour)
            self._broken_since.pop(neighbour, None)
            with contextlib.suppress(zmq.ZMQError):
                socket.disconnect(f"tcp://{before}")
        if contact.key is not None and self._secret is not None:
            socket.curve_serverkey = contact.key.encode()
            self._senders[contact.key] = neighbour  # a former key stays known: the agent may still use it
        self._addresses[neighbour], self._keys[neighbour] = contact.address, contact.key
        try:
            socket.connect(f"tcp://{contact.address}")
        except zmq.ZMQError as error:
            raise GossamerError(f"agent {neighbour} cannot be reached at {contact.address}: {error}") from None

    def take_requests(self) -> list[tuple[str, memoryview]]:
        """The messages that `receive` has read of agents that are admitted and no neighbours, by key."""
        taken, self._requests = self._requests, []
        return taken

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        """Messages that have arrived, by sender; wait at most so long for a first one."""
        if self._monitor.error is not None:
            raise self._monitor.error
        while self._to_reconnect:
            self._reconnect(self._to_reconnect.pop())
        arrived: list[tuple[int, memoryview]] = []
        if self._poller.poll(max(0, int(1000 * seconds))):
            for _ in range(SEND_QUEUE):
                try:
                    name = self._listener.recv(_NOBLOCK)
                except zmq.Again:
                    break
                frame, sizes = self._read()
                sender = self._sender(name, frame)
                if sender is None:
                    continue
                self._connections.on_delivered(frame.get(zmq.SRCFD), sender, sizes)
                if isinstance(sender, str):
                    if len(sizes) == 1 and len(self._requests) < RECEIVE_QUEUE:
                        self._requests.append((sender, frame.buffer))
                    continue
                self.bytes_in[sender] += sum(sizes)
                if len(sizes) == 1:
                    arrived.append((sender, frame.buffer))
                else:
                    self._refuse(sender, "malformed", f"{len(sizes)} parts")
        return arrived

    def watch(self, descriptor: int) -> None:
        """Let `receive` return when this file descriptor can be read, too."""
        self._poller.register(descriptor, zmq.POLLIN)

    def close(self) -> None:
        self._monitor.stop()
        self._connections.close()
        for socket in (self._listener, *self._outgoing.values()):
            socket.close(linger=500)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def _read(self) -> tuple[Any, list[int]]:
        """The last part of a message, and the sizes of all its parts; it should have one, and others are dropped."""
        sizes = []
        while True:
            frame = self._listener.recv(copy=False)
            sizes.append(len(frame))
            if not frame.more:
                return frame, sizes

    def _on_incoming(self, kind: int, number: int) -> None:
        if kind == zmq.EVENT_LISTENING:
            self._connections.on_listening(number)
        elif kind == zmq.EVENT_ACCEPTED:
            self._connections.on_accepted(number, self._port)
        elif kind in HANDSHAKE_FAILURES:
            self._handshake_failure = HANDSHAKE_FAILURES[kind]
            if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH and self._takes_strangers:
                self._handshake_failure += ", and that is not admitted"
        elif kind == zmq.EVENT_DISCONNECTED:
            found = self._connections.on_closed(number)
            if found is not None and (self._handshake_failure or not found[1]):
                self._refuse(found[0], "handshake", self._handshake_failure or "not a message before it left")
            self._handshake_failure = ""

    def _on_outgoing(self, neighbour: int, kind: int, number: int) -> None:
        if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._shut_out.add(neighbour)
        elif kind == zmq.EVENT_DISCONNECTED:
            self._connections.on_disconnected(neighbour)
            self._broken_since[neighbour] = time.monotonic()
        else:
            self._broken_since.pop(neighbour, None)
        if kind == zmq.EVENT_CONNECTED:
            port = int(self._addresses[neighbour].rpartition(":")[2])
            self._connections.on_connected(neighbour, number, port)

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        elapsed, self._enforced_at = now - self._enforced_at, now
        for neighbour in self._connections.enforce_limits(elapsed):
            self._broken_since.setdefault(neighbour, now)
        for neighbour, since in list(self._broken_since.items()):
            if now > since + RECONNECT_AFTER:
                del self._broken_since[neighbour]
                self._to_reconnect.add(neighbour)
                detail = NOT_ADMITTED if neighbour in self._shut_out else NO_NEIGHBOUR
                self._shut_out.discard(neighbour)
                self._refuse(self._addresses[neighbour], "handshake", detail)

    def _on_shutdown(self, address: str, why: str) -> None:
        self._refuse(address, "flood", why)

    def _reconnect(self, neighbour: int) -> None:
        """Connect again, as ZeroMQ does not do once the other end failed the handshake."""
        self._connections.on_disconnected(neighbour)
        with contextlib.suppress(zmq.ZMQError):  # it may have forgotten the endpoint
            self._outgoing[neighbour].disconnect(f"tcp://{self._addresses[neighbour]}")
        self._outgoing[neighbour].connect(f"tcp://{self._addresses[neighbour]}")

    def _refuse(self, sender: int | str, reason: str, detail: str) -> None:
        self.refused[reason] += 1
        self._on_refused(sender, reason, detail)

    def _sender(self, claimed: bytes, frame: Any) -> int | str | None:
        """The neighbour that a message comes from; the key of an agent that is admitted."""
        if self._secret is not None:
            key = frame.get("User-Id")
            return self._senders.get(key, key if key in self._allowed.admitted else None)
        if claimed.isdigit() and len(claimed) < 10:
            if int(claimed) in self._outgoing:
                return int(claimed)
            if self._takes_strangers:
                return claimed.decode()
        self._refuse(frame.get("Peer-Address"), "sender", repr(claimed)[:40])
        return None

    def _prepare_outgoing(self, neighbour: int, contact: Contact) -> None:
        """Make the socket that sends to a neighbour; it is not connected yet."""
        self._outgoing[neighbour] = self._make_outgoing(self._agent, contact)
        self._monitor.follow(self._outgoing[neighbour], OUTGOING_EVENTS, partial(self._on_outgoing, neighbour))

    def _make_outgoing(self, agent: int, contact: Contact) -> Any:
        if self._secret is not None and contact.key is None:
            raise GossamerError(f"there is no public key for {contact.address}; cut the shards with keys")
        socket = make_socket(self._context, zmq.DEALER)
        socket.setsockopt(zmq.RCVHWM, 1)  # nothing is ever read from it
        socket.setsockopt(zmq.LINGER, 0)  # messages to a connection that is given up would wait for ever
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_REPLY_BYTES)
        if self._secret is not None and contact.key is not None:
            socket.curve_secretkey = self._secret.encode()
            socket.curve_publickey = derive_public_key(self._secret).encode()
            socket.curve_serverkey = contact.key.encode()
        else:
            socket.setsockopt(zmq.ROUTING_ID, str(agent).encode())
        return socket
