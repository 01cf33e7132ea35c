"""ZeroMQ between neighbours: one listening socket an agent, one outgoing connection a neighbour, CURVE on both.

Only the keys of neighbours complete the handshake; a message's sender is the agent whose key it came with, whatever
the message says. A message has one part. Queues and what waits for a message's end are bounded, so that a flood costs
little; what does not fit is dropped, for the protocol asks again. Handshakes that fail and connections that hold too
much are seen by a thread of their own, however long the local arithmetic takes.
"""

import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import zmq
import zmq.utils.z85 as z85
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from gossamer.errors import GossamerError
from gossamer.runtime.connections import Connections
from gossamer.runtime.shards import Contact

SEALED = 256  # bytes that encryption may add to a part
QUEUE = 64  # messages that wait for a neighbour
UNREAD = 16  # messages of a neighbour that wait to be read; the others wait where they come from
COPIED = 1 << 16  # bytes from which on a message is sent from where it lies
NOW = int(zmq.NOBLOCK)  # a flag of an enum would be looked up with every message
KERNEL = 1 << 23  # bytes that may wait in the kernel, not yet seen by ZeroMQ
DOMAIN = b"gossamer"  # ZeroMQ asks who may come in; with a domain it lets nobody in when there is no answer
WATCH = 0.1  # seconds between two looks at the connections
FAILED = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "a key that is no neighbour's",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no CurveZMQ",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "left before its end",
}
Refused = Callable[[int | str, str, str], None]  # an agent or an address, the reason, and a detail


def new_keys() -> tuple[str, str]:
    """A public and a secret key, Z85."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def check_key(key: object, where: str) -> str:
    """A public key as it is, or an error that says where it stood."""
    try:
        if isinstance(key, str) and len(z85.decode(key.encode())) == 32:
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
        self._connections = Connections((UNREAD + 1) * (largest + SEALED) + KERNEL)
        self._closing = threading.Event()
        monitor = self._listening.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(FAILED))
        self._watching = threading.Thread(target=self._watch, args=(monitor,), daemon=True)
        self._watching.start()
        try:
            self._listening.bind(f"tcp://{address}")
            for z, contact in neighbours.items():
                self._to[z] = self._connected(agent, contact)
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
                self.bytes_in[sender] += sum(sizes)
                if len(sizes) == 1:
                    arrived.append((sender, frame.buffer))
                else:
                    self._refuse(sender, "malformed", f"{len(sizes)} parts")
        return arrived

    def close(self) -> None:
        self._closing.set()
        self._watching.join()
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
                self._connections.handed_over(frame.get(zmq.SRCFD), sizes, self._secret is not None)
                return frame, sizes

    def _watch(self, monitor: Any) -> None:
        """Follow connections as they come and go; shut those that hold too much."""
        failed = ""
        while not self._closing.is_set():
            if monitor.poll(int(1000 * WATCH)):
                event = recv_monitor_message(monitor)
                kind, number = event["event"], int(event["value"])
                if kind == zmq.EVENT_ACCEPTED:
                    self._connections.accepted(number, time.monotonic())
                elif kind in FAILED:
                    failed = FAILED[kind]  # of the connection that is closed next
                elif kind == zmq.EVENT_DISCONNECTED:
                    address, spoke = self._connections.closed(number)
                    if failed or not spoke:
                        self._refuse(address, "handshake", failed or "not a message before it left")
                    failed = ""
            for address in self._connections.shut_overfull(time.monotonic()):
                self._refuse(address, "flood", "parts of a message without an end")
        self._listening.disable_monitor()
        monitor.close(linger=0)

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

    def _connected(self, agent: int, contact: Contact) -> Any:
        if self._secret is not None and contact.key is None:
            raise GossamerError(f"there is no public key for {contact.address}; cut the shards with keys")
        socket = self._socket(zmq.DEALER)
        if self._secret is not None and contact.key is not None:
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
