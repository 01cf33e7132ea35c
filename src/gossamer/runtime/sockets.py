"""ZeroMQ between neighbours: one listening socket an agent, one outgoing connection a neighbour, CURVE on both.

Only the keys of neighbours complete the handshake; a message's sender is the agent whose key it came with, whatever
the message says. Queues and the parts of a message are bounded, so that a stranger's flood costs nothing; a neighbour,
who has a key, can still send many parts. What does not fit is dropped: the protocol asks again.
"""

import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

import zmq
import zmq.utils.z85 as z85
from zmq.auth.thread import ThreadAuthenticator

from gossamer.errors import GossamerError
from gossamer.runtime.shards import Contact
from gossamer.runtime.wire import MAX_HEADER, Parts

SEALED = 256  # bytes that encryption may add to a part
QUEUE = 64  # messages that wait for a neighbour, or to be read


def new_keys() -> tuple[str, str]:
    """A public and a secret key, Z85."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def check_key(key: str, where: str) -> str:
    """A public key as it is, or an error that says where it stood."""
    try:
        if len(z85.decode(key.encode())) == 32:
            return key
    except (ValueError, KeyError, struct.error):
        pass
    raise GossamerError(f"{where}: {key!r} is not a public key of 40 characters, as gossamer keys prints it")


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
        self.turned_away = 0

    def callback(self, domain: str, key: bytes) -> bool:
        known = key.decode() in self.keys
        self.turned_away += not known
        return known


class Sockets:
    """One agent's connections to its neighbours."""

    def __init__(
        self, agent: int, address: str, neighbours: Mapping[int, Contact], secret: str | None, largest: int
    ) -> None:
        """`largest` is the size in bytes of the largest message that the plan has; without a secret key the network is
        trusted, and anyone on it can pretend to be anyone."""
        self.bytes_in: Counter[int] = Counter()
        self.bytes_out: Counter[int] = Counter()
        self.dropped = 0
        self._context = zmq.Context()
        self._senders = {contact.key: z for z, contact in neighbours.items() if contact.key is not None}
        self._guests = _Guests(self._senders)
        self._secret = secret
        self._authenticator = None
        if secret is not None:
            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback("*", self._guests)
        self._listening = self._socket(zmq.ROUTER)
        self._listening.setsockopt(zmq.MAXMSGSIZE, max(largest, MAX_HEADER) + SEALED)
        self._listening.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if secret is not None:
            self._listening.curve_server = True
            self._listening.curve_secretkey = secret.encode()
        try:
            self._listening.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            self.close()
            raise GossamerError(
                f"agent {agent} cannot listen on {address}: {error}; free the port or change it"
            ) from None
        self._to = {z: self._connected(agent, contact) for z, contact in neighbours.items()}

    @property
    def turned_away(self) -> int:
        """Handshakes with a key that is no neighbour's."""
        return self._guests.turned_away

    def send(self, neighbour: int, parts: Parts) -> None:
        """Hand a message over, or drop it if too many wait already."""
        try:
            self._to[neighbour].send_multipart(parts, flags=zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self.dropped += 1
            return
        self.bytes_out[neighbour] += sum(len(part) for part in parts)

    def receive(self, seconds: float) -> list[tuple[int, list[memoryview]]]:
        """What has arrived, waiting at most so long for a first message."""
        arrived = []
        if self._listening.poll(max(0, int(1000 * seconds))):
            for _ in range(QUEUE):
                try:
                    frames = self._listening.recv_multipart(flags=zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    break
                sender = self._sender(frames)
                if sender is not None:
                    parts = [frame.buffer for frame in frames[1:]]
                    self.bytes_in[sender] += sum(len(part) for part in parts)
                    arrived.append((sender, parts))
        return arrived

    def close(self) -> None:
        for socket in (self._listening, *getattr(self, "_to", {}).values()):
            socket.close(linger=500)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def _sender(self, frames: list[Any]) -> int | None:
        if self._secret is not None:
            return self._senders.get(frames[-1].get("User-Id"))
        claimed = frames[0].bytes
        return int(claimed) if claimed.isdigit() and int(claimed) in self._to else None

    def _connected(self, agent: int, contact: Contact) -> Any:
        socket = self._socket(zmq.DEALER)
        if self._secret is not None:
            if contact.key is None:
                raise GossamerError(f"there is no public key for {contact.address}; cut the shards with keys")
            socket.curve_secretkey = self._secret.encode()
            socket.curve_publickey = public_of(self._secret).encode()
            socket.curve_serverkey = contact.key.encode()
        else:
            socket.setsockopt(zmq.ROUTING_ID, str(agent).encode())
        socket.connect(f"tcp://{contact.address}")
        return socket

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        for option, value in (
            (zmq.SNDHWM, QUEUE),
            (zmq.RCVHWM, QUEUE),
            (zmq.RECONNECT_IVL, 50),
            (zmq.RECONNECT_IVL_MAX, 1000),
            (zmq.HEARTBEAT_IVL, 2000),
            (zmq.HEARTBEAT_TIMEOUT, 6000),
            (zmq.HANDSHAKE_IVL, 10000),
            (zmq.IPV6, 1),
        ):
            socket.setsockopt(option, value)
        return socket
