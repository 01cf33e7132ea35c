"""Messages between ranks on one machine, through shared memory.

A sender writes a message into memory that both ranks have mapped, and sends its position over a local socket. The
memory has two halves, used alternately. In every exchange both ranks send a position, if only of an empty message. So a
rank that has received the other's position of this exchange knows that its own message of the last exchange has been
read, so that it may overwrite that half in the next exchange.
"""

import json
import math
import os
import socket
import struct
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import torch
from torch import Tensor

BLOCK = 1 << 16  # bytes, of which the size of a half is a multiple
CHANNEL_TIMEOUT = 600.0  # seconds to wait for another rank, for its connection or for a message
CONNECT_TIMEOUT = 10.0  # seconds to connect; a rank that does not accept in time is reached over the network
POSITION_PACKET = struct.Struct("<qq")  # size of new memory or 0, and first byte of the message
DESCRIPTORS = Path("/proc/self/fd")  # where memory can be mapped by its descriptor (Linux)
RANK_PACKET = struct.Struct("<q")  # rank of the one that connects


class SharedChannel:
    """This rank's end of the channel to another rank on its machine. Failures are OSErrors."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        weakref.finalize(self, connection.close)
        self._connection.settimeout(CHANNEL_TIMEOUT)
        self._outgoing = self._incoming = torch.empty(0, dtype=torch.uint8)
        self._half = 0

    def send(self, parts: Sequence[Tensor]) -> None:
        """Send tensors, one after the other."""
        contents = [part.detach().contiguous().view(-1).view(torch.uint8) for part in parts]
        length = sum(map(len, contents))
        size, files = 0, []
        if 2 * length > len(self._outgoing):
            size = 2 * math.ceil(length / BLOCK) * BLOCK
            files = [os.memfd_create("gossamer")]
            os.posix_fallocate(files[0], 0, size)
            self._outgoing = _map_memory(files[0], size)
        self._half = 1 - self._half
        first = position = self._half * (len(self._outgoing) // 2)
        for content in contents:
            self._outgoing[position : position + len(content)] = content
            position += len(content)
        socket.send_fds(self._connection, [POSITION_PACKET.pack(size, first)], files)
        for file in files:
            os.close(file)

    def receive(self, length: int, dtype: torch.dtype) -> Tensor:
        """The other rank's message of `length` numbers: a view of shared memory, valid until this rank sends again."""
        packet, files, _, _ = socket.recv_fds(self._connection, POSITION_PACKET.size, 1)
        if len(packet) < POSITION_PACKET.size:
            raise ConnectionError("its process has ended")
        size, first = POSITION_PACKET.unpack(packet)
        if size:
            self._incoming = _map_memory(files[0], size)
            os.close(files[0])
        return self._incoming[first : first + length * dtype.itemsize].view(dtype)


def _map_memory(file: int, size: int) -> Tensor:
    return torch.from_file(str(DESCRIPTORS / str(file)), shared=True, size=size, dtype=torch.uint8)


def connect_local_ranks(rank: int, gather_texts: Callable[[str], list[str]]) -> dict[int, SharedChannel]:
    """Channels to the ranks on this machine, by rank; empty where memfd or SOCK_SEQPACKET is missing.

    Every rank has a listener that only its own user's processes can reach, and connects to those of the
    higher ranks.
    `gather_texts` exchanges a text with all ranks.
    """
    connections: dict[int, socket.socket] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        listener = _listen(Path(folder) / "listener")
        if listener is not None:
            stack.enter_context(listener)
        own_address = None if listener is None else listener.getsockname()
        addresses = [json.loads(text) for text in gather_texts(json.dumps(own_address))]
        for other in range(rank + 1, 0 if listener is None else len(addresses)):
            with suppress(OSError):  # a rank on another machine: its listener's path does not exist here
                connections[other] = _connect(addresses[other], rank)
        connected = [json.loads(text) for text in gather_texts(json.dumps(sorted(connections)))]
        for _ in range(sum(rank in others for others in connected)):
            assert listener is not None  # another rank has connected to it
            connection, _ = listener.accept()
            (caller,) = RANK_PACKET.unpack(connection.recv(RANK_PACKET.size))
            connections[caller] = connection
    return {other: SharedChannel(connection) for other, connection in connections.items()}


def _listen(path: Path) -> socket.socket | None:
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (OSError, AttributeError):  # no such sockets here
        return None
    try:
        if not hasattr(os, "memfd_create") or not DESCRIPTORS.is_dir():
            raise OSError("no such memory")
        listener.bind(str(path))
        listener.listen(4096)  # all ranks of the machine may connect before the first is accepted
        listener.settimeout(CHANNEL_TIMEOUT)
    except OSError:
        listener.close()
        return None
    return listener


def _connect(address: str | None, rank: int) -> socket.socket:
    if address is None:
        raise OSError("no listener")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(CONNECT_TIMEOUT)
        connection.connect(address)
        connection.send(RANK_PACKET.pack(rank))
    except OSError:
        connection.close()
        raise
    return connection
