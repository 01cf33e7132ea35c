"""The floods of benchmarks/floods.py, which starts it as a process of its own: it imports next to nothing.

    python benchmarks/flood.py NAME TARGET CONNECTIONS SECONDS

TARGET is a JSON list of the fields of `Target`; only addresses of the loopback interface are flooded.
"""

import json
import selectors
import socket
import sys
import time
from typing import NamedTuple

import zmq

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)


class Target(NamedTuple):
    """A peer to be flooded, and a neighbour of it whose place and key the flood may take."""

    address: str
    key: str
    neighbour: str  # its address
    secret: str
    largest: int  # bytes of the largest message of the plan
    neighbours: int


def ends_at(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def held(target: Target, count: int, end: float) -> None:
    """Connections that say one byte and stay."""
    kept = []
    for _ in range(count):
        one = socket.socket()
        one.settimeout(2)
        try:
            one.connect(ends_at(target.address))
            one.sendall(b"\xff")
        except OSError:
            pass
        kept.append(one)
    print("flooding", flush=True)
    time.sleep(max(0.0, end - time.time()))


def reconnecting(target: Target, count: int, end: float) -> None:
    """Connections that say one byte and come again as soon as they are shut."""
    with selectors.DefaultSelector() as ready:
        for _ in range(count):
            ready.register(connection(target.address), selectors.EVENT_READ | selectors.EVENT_WRITE)
        print("flooding", flush=True)
        while time.time() < end:
            for key, events in ready.select(timeout=0.1):
                try:
                    if events & selectors.EVENT_WRITE:
                        key.fileobj.send(b"\xff")  # type: ignore[union-attr]
                        ready.modify(key.fileobj, selectors.EVENT_READ)
                    if events & selectors.EVENT_READ and not key.fileobj.recv(4096):  # type: ignore[union-attr]
                        raise ConnectionResetError
                except OSError:
                    ready.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    ready.register(connection(target.address), selectors.EVENT_READ | selectors.EVENT_WRITE)


def connection(address: str) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(ends_at(address))
    return one


def unfinished(target: Target, count: int, end: float) -> None:
    """Connections that announce the largest message before their handshake and send all of it but the end."""
    start = GREETING + b"\x06" + target.largest.to_bytes(8, "big") + b"\x05HELLO"
    left = {connection(target.address): start + bytes(target.largest - 100) for _ in range(count)}
    while time.time() < end and left:
        for one, data in list(left.items()):
            try:
                left[one] = data[one.send(data[:100_000]) :]
            except BlockingIOError:
                continue
            except OSError:
                del left[one]
        time.sleep(0.001)
    time.sleep(max(0.0, end - time.time()))


def impostor(target: Target, count: int, end: float) -> None:
    """Whoever answers in a neighbour's place announces a message of many gigabytes and sends it."""
    zeros = bytes(1 << 20)
    with socket.create_server(ends_at(target.neighbour)) as server:
        server.settimeout(0.2)
        while time.time() < end:
            try:
                one, _ = server.accept()
                one.settimeout(1)
                one.sendall(GREETING + b"\x06" + (1 << 33).to_bytes(8, "big"))
                while time.time() < end:
                    one.sendall(zeros)
            except OSError:
                continue


def pushed_back(target: Target, count: int, end: float) -> None:
    """A neighbour sends small parts of one message back over the connection that leads to it."""
    context = zmq.Context()
    server = context.socket(zmq.ROUTER)
    server.curve_server, server.curve_secretkey = True, target.secret.encode()
    server.setsockopt(zmq.ROUTER_MANDATORY, 1)
    server.bind(f"tcp://{target.neighbour}")
    part, name = bytes(300), b""
    while time.time() < end:
        if server.poll(0 if name else 100):
            name = server.recv_multipart()[0]
        try:
            for _ in range(1000 if name else 0):
                server.send(name, zmq.SNDMORE | zmq.NOBLOCK)
                for _ in range(1000):
                    server.send(part, zmq.SNDMORE | zmq.NOBLOCK)
                server.send(b"", zmq.NOBLOCK)
        except zmq.ZMQError:
            time.sleep(0.001)
    context.destroy(linger=0)


def one_key(target: Target, count: int, end: float) -> None:
    """Many connections of one neighbour, each with a message that does not end."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 2 * count)
    sockets = []
    for _ in range(count):
        one = context.socket(zmq.DEALER)
        one.setsockopt(zmq.SNDHWM, 4)
        one.curve_serverkey, one.curve_secretkey = target.key.encode(), target.secret.encode()
        one.curve_publickey = zmq.curve_public(target.secret.encode())
        one.connect(f"tcp://{target.address}")
        one.send(b"hello")
        sockets.append(one)
    part = bytes(target.largest - 100)
    while time.time() < end:
        for one in sockets:
            try:
                one.send(part, zmq.SNDMORE | zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                continue
        time.sleep(0.001)
    context.destroy(linger=0)


FLOODS = {one.__name__: one for one in (held, reconnecting, unfinished, impostor, pushed_back, one_key)}

if __name__ == "__main__":
    _, name, fields, count, seconds = sys.argv
    chosen = Target(*json.loads(fields))
    if {ends_at(address)[0] for address in (chosen.address, chosen.neighbour)} != {"127.0.0.1"}:
        raise SystemExit("expected addresses of 127.0.0.1")
    FLOODS[name](chosen, int(count), time.time() + float(seconds))
