"""Requests to the process of an agent from others of its owner on this machine, over a socket that only they can open.

The process listens on a Unix socket in a folder of mode 0700, whose path it leaves in serving.json. A message is a JSON
object and bytes, each after its length.
"""

import contextlib
import json
import os
import socket
import struct
import tempfile
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, write_atomically
from gossamer.runs.documents import read_json

SERVING_FILE = "serving.json"
PREFIX = "gossamer-"  # of the folder of a socket
LENGTHS = struct.Struct("<QQ")  # of the JSON object, and of the bytes after it
MAX_REQUEST = 1 << 16
MAX_WAIT = 1e9  # seconds
MAX_PATH = 90  # bytes of the folder of a socket, whose path has at most 107
REQUEST_TIMEOUT = 1.0  # seconds for a request to arrive: it is one line of a process on this machine


class LocalRequests:
    """The listening side."""

    def __init__(self, folder: Path) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise GossamerError("--serve needs Unix sockets, which this system does not have")
        self._file = folder / SERVING_FILE
        _remove_left(self._file)
        short = len(os.fsencode(tempfile.gettempdir())) < MAX_PATH
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=None if short else "/tmp"))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._folder / "socket"))
        self._listener.listen(16)
        self._listener.setblocking(False)
        about = {"socket": str(self._folder / "socket"), "process": os.getpid()}
        write_atomically(self._file, json.dumps(about).encode(), PRIVATE)

    @property
    def descriptor(self) -> int:
        """That is readable when a request has come."""
        return self._listener.fileno()

    def accept(self) -> list[tuple[socket.socket, dict[str, float]]]:
        """Requests that have come, with the connections to answer on."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(REQUEST_TIMEOUT)
                try:
                    request, _ = receive_message(connection, MAX_REQUEST)
                    seconds = float(request["give_up"])
                    if not 0 <= seconds < MAX_WAIT:
                        raise ValueError("seconds that nobody waits")
                    found.append((connection, {"give_up": seconds}))
                except (OSError, ValueError, TypeError, KeyError, GossamerError):
                    connection.close()
        return found

    def close(self) -> None:
        self._file.unlink(missing_ok=True)
        self._listener.close()
        (self._folder / "socket").unlink(missing_ok=True)
        self._folder.rmdir()


def _remove_left(file: Path) -> None:
    """Remove the socket that a killed process has left."""
    with contextlib.suppress(OSError, GossamerError, KeyError, TypeError):
        left = Path(str(read_json(file)["socket"]))
        if left.parent.name.startswith(PREFIX):
            left.unlink(missing_ok=True)
            left.parent.rmdir()


def answer(connection: socket.socket, about: dict[str, Any], content: bytes = b"") -> None:
    """Answer a request, if whoever asked is still there."""
    with contextlib.suppress(OSError):
        connection.settimeout(5.0)  # the protocol waits meanwhile
        send_message(connection, about, content)
    connection.close()


def ask(folder: Path, request: dict[str, Any], seconds: float) -> tuple[dict[str, Any], bytes] | None:
    """The answer of the process that serves the run in a folder; None if there is none."""
    try:
        path = str(read_json(folder / SERVING_FILE)["socket"])
    except (OSError, GossamerError, KeyError, TypeError):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path)
        except OSError:
            return None
        connection.settimeout(seconds + 10.0)
        try:
            send_message(connection, request)
            return receive_message(connection, 1 << 40)
        except TimeoutError:
            raise GossamerError(f"the process that serves {folder} does not answer; see gossamer status") from None
        except (OSError, ValueError):
            raise GossamerError(f"the process that serves {folder} has ended before it answered") from None


def send_message(connection: socket.socket, about: dict[str, Any], content: bytes = b"") -> None:
    header = json.dumps(about).encode()
    connection.sendall(LENGTHS.pack(len(header), len(content)) + header)
    connection.sendall(content)


def receive_message(connection: socket.socket, most: int) -> tuple[dict[str, Any], bytes]:
    """A message of at most so many bytes."""
    header, content = LENGTHS.unpack(_receive(connection, LENGTHS.size))
    if header + content > most:
        raise ValueError(f"a message of {header + content} bytes")
    about = json.loads(_receive(connection, header))
    if not isinstance(about, dict):
        raise ValueError("a message that is no object")
    return about, _receive(connection, content)


def _receive(connection: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise ValueError("the connection has ended")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
