"""Ranks on one machine: a message is written once into memory that both see, and a local socket says where it lies.

Memory has two halves that are used in turn. In an exchange both ranks say something, if only that there is nothing:
who has heard the other's part of this exchange knows that its own message of the last has been read, whose half is the
next to be written over.
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

ROOM = 1 << 16  # bytes; a half has a multiple of it
PATIENCE = 600.0  # seconds
WHERE = struct.Struct("<qq")  # the size of new memory, or 0, and where the message begins
CALLER = struct.Struct("<q")  # a rank


class Beside:
    """This rank's end of what it shares with another one on its machine. What goes wrong is an OSError."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        weakref.finalize(self, line.close)
        self._line.settimeout(PATIENCE)
        self._written = self._read = torch.empty(0, dtype=torch.uint8)
        self._turn = 0

    def send(self, parts: Sequence[Tensor]) -> None:
        """Send tensors, one after the other."""
        contents = [part.detach().contiguous().view(-1).view(torch.uint8) for part in parts]
        length = sum(map(len, contents))
        size, files = 0, []
        if 2 * length > len(self._written):
            size = 2 * -(-length // ROOM) * ROOM
            files = [os.memfd_create("gossamer")]
            os.posix_fallocate(files[0], 0, size)
            self._written = _mapped(files[0], size)
        self._turn = 1 - self._turn
        begin = place = self._turn * (len(self._written) // 2)
        for content in contents:
            self._written[place : place + len(content)] = content
            place += len(content)
        socket.send_fds(self._line, [WHERE.pack(size, begin)], files)
        for file in files:
            os.close(file)

    def receive(self, length: int, dtype: torch.dtype) -> Tensor:
        """The other rank's message of so many numbers, where it lies."""
        said, files, _, _ = socket.recv_fds(self._line, WHERE.size, 1)
        if len(said) < WHERE.size:
            raise ConnectionError("its process has ended")
        size, begin = WHERE.unpack(said)
        if size:
            self._read = _mapped(files[0], size)
            os.close(files[0])
        return self._read[begin : begin + length * dtype.itemsize].view(dtype)


def _mapped(file: int, size: int) -> Tensor:
    return torch.from_file(f"/proc/self/fd/{file}", shared=True, size=size, dtype=torch.uint8)


def find_nearby(rank: int, texts: Callable[[str], list[str]]) -> dict[int, Beside]:
    """The ranks on this rank's machine; `texts` gives what every rank says. None where the system has no such memory.

    Every rank opens a door that only its own user's processes can reach, and calls at those of the ranks after it.
    """
    lines: dict[int, socket.socket] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        door = _opened(Path(folder) / "door")
        if door is not None:
            stack.enter_context(door)
        doors = [json.loads(text) for text in texts(json.dumps(None if door is None else door.getsockname()))]
        for other in range(rank + 1, 0 if door is None else len(doors)):
            with suppress(OSError):
                lines[other] = _called(doors[other], rank)
        called = [json.loads(text) for text in texts(json.dumps(sorted(lines)))]
        for _ in range(sum(rank in others for others in called)):
            assert door is not None  # somebody has called at it
            line, _ = door.accept()
            (caller,) = CALLER.unpack(line.recv(CALLER.size))
            lines[caller] = line
    return {other: Beside(line) for other, line in lines.items()}


def _opened(path: Path) -> socket.socket | None:
    try:
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (OSError, AttributeError):  # no such sockets here
        return None
    try:
        if not hasattr(os, "memfd_create"):
            raise OSError("no such memory")
        door.bind(str(path))
        door.listen(4096)
        door.settimeout(PATIENCE)
    except OSError:
        door.close()
        return None
    return door


def _called(door: str | None, rank: int) -> socket.socket:
    if door is None:
        raise OSError("no door")
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.settimeout(10.0)  # a door with too many callers: that rank is reached over the network
        line.connect(door)
        line.send(CALLER.pack(rank))
    except OSError:
        line.close()
        raise
    return line
