"""Messages between ranks on one machine, through shared memory.

A sender writes a message into memory that both ranks have mapped, and sends its position over a local socket. The
memory has two halves, used alternately. In every exchange both ranks send a position, if only of an empty message. So a
rank that has received the other's position of this exchange knows that its own message of the last exchange has been
read: that half is the next to be overwritten.
"""

import json
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

BLOCK = 1 << 16  # bytes; a half has a multiple of it
CHANNEL_TIMEOUT = 600.0  # seconds without a message
CONNECT_TIMEOUT = 10.0  # seconds; a rank whose listener has too many callers is reached over the network
POSITION = struct.Struct("<qq")  # size of new memory or 0, and first byte of the message
DESCRIPTORS = Path("/proc/self/fd")  # where memory can be mapped by its descriptor (Linux)
HANDSHAKE = struct.Struct("<q")  # rank of the one that connects


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
            size = 2 * -(-length // BLOCK) * BLOCK
            files = [os.memfd_create("gossamer")]
            os.posix_fallocate(files[0], 0, size)
            self._outgoing = _map_memory(files[0], size)
        self._half = 1 - self._half
        first = position = self._half * (len(self._outgoing) // 2)
        for content in contents:
            self._outgoing[position : position + len(content)] = content
            position += len(content)
        socket.send_fds(self._connection, [POSITION.pack(size, first)], files)
        for file in files:
            os.close(file)

    def receive(self, length: int, dtype: torch.dtype) -> Tensor:
        """The other rank's message of so many numbers: a view of the shared memory."""
        packet, files, _, _ = socket.recv_fds(self._connection, POSITION.size, 1)
        if len(packet) < POSITION.size:
            raise ConnectionError("its process has ended")
        size, first = POSITION.unpack(packet)
        if size:
            self._incoming = _map_memory(files[0], size)
            os.close(files[0])
        return self._incoming[first : first + length * dtype.itemsize].view(dtype)


def _map_memory(file: int, size: int) -> Tensor:
    return torch.from_file(str(DESCRIPTORS / str(file)), shared=True, size=size, dtype=torch.uint8)


def connect_local_ranks(rank: int, gather_texts: Callable[[str], list[str]]) -> dict[int, SharedChannel]:
    """Channels to the ranks on this machine, by rank; none where the system has no such memory or sockets.

    Every rank has a listener that only its own user's processes can reach, and connects to those of the ranks after it.
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
            with suppress(OSError):
                connections[other] = _connect(addresses[other], rank)
        connected = [json.loads(text) for text in gather_texts(json.dumps(sorted(connections)))]
        for _ in range(sum(rank in others for others in connected)):
            assert listener is not None  # another rank has connected to it
            connection, _ = listener.accept()
            (caller,) = HANDSHAKE.unpack(connection.recv(HANDSHAKE.size))
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
        listener.listen(4096)
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
        connection.send(HANDSHAKE.pack(rank))
    except OSError:
        connection.close()
        raise
    return connection
