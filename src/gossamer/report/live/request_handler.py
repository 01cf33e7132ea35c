"""A request of page or metrics, read whole within bounds of size and time before it is answered."""

import io
import socket
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gossamer.report.live.bounded_server import BoundedServer

MAX_HEAD = 16_384  # bytes of a request line and its headers
REQUEST_SECONDS = 10.0  # for a whole request, and for a client to take a piece of an answer
PIECE_BYTES = 65_536
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def send_in_pieces(connection: socket.socket, content: bytes) -> None:
    """Send all; the time limit is that of a piece, so that a slow client gets a long answer, too."""
    connection.settimeout(REQUEST_SECONDS)
    view = memoryview(content)
    for start in range(0, len(view), PIECE_BYTES):
        connection.sendall(view[start : start + PIECE_BYTES])


class RequestError(Exception):
    """A request that is larger or slower than is allowed."""


class RequestHandler(BaseHTTPRequestHandler):
    """Base class: reads and checks a request; subclasses answer it."""

    server: BoundedServer
    protocol_version = "HTTP/1.1"

    def answer(self, target: SplitResult) -> None:
        """Answer a request for a path of this server."""
        raise NotImplementedError

    def handle(self) -> None:
        """Read one request and answer it."""
        self.close_connection = True
        self.request_version, self.command, self.requestline = "HTTP/1.1", "", ""
        self._deadline = time.monotonic() + REQUEST_SECONDS
        try:
            head, self._rest = self._read_head()
            self.rfile.close()
            self.rfile = io.BytesIO(head)
            self.raw_requestline = self.rfile.readline()
            if not head or not self.parse_request():
                return
            self.close_connection = True
            if self.request_version == "HTTP/0.9":
                self.request_version = "HTTP/1.0"
            self._check()
        except RequestError as error:
            self.reply(431, str(error))

    def _check(self) -> None:
        if self.command != "POST":
            self.server.keep(self.connection)
        if len(self.headers.get_all("Host", [])) != 1 or not self.server.hosts.allow(self.headers["Host"]):
            return self.reply(421, f"nothing is served under that host name; ask for {self.server.hosts.describe()}")
        try:
            target = urlsplit(self.path)
        except ValueError:
            return self.reply(400, "expected a path")
        if target.netloc or not target.path.startswith("/"):
            return self.reply(400, "expected a path")
        return self.answer(target)

    def _receive(self) -> bytes:
        """Some bytes, or none at the end; `recv` alone would have a deadline for each byte."""
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            received: bytes = self.connection.recv(PIECE_BYTES)
        except TimeoutError:
            raise RequestError(f"expected the whole request within {REQUEST_SECONDS:g} s") from None
        return received

    def _read_head(self) -> tuple[bytes, bytes]:
        read = b""
        while b"\r\n\r\n" not in read and b"\n\n" not in read:
            if len(read) > MAX_HEAD:
                raise RequestError(f"expected at most {MAX_HEAD} bytes of request line and headers")
            part = self._receive()
            if not part:
                return b"", b""
            read += part
        end = min(place for mark in (b"\r\n\r\n", b"\n\n") if (place := read.find(mark) + len(mark)) >= len(mark))
        if end > MAX_HEAD:
            raise RequestError(f"expected at most {MAX_HEAD} bytes of request line and headers")
        return read[:end], read[end:]

    def read_body(self, most: int) -> bytes | None:
        """The body of a request; None for one that is longer, or that ends early."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > most:
            return None
        while len(self._rest) < int(length):
            part = self._receive()
            if not part:
                return None
            self._rest += part
        self.server.keep(self.connection)
        return self._rest

    def reply(self, status: int, text: str, **headers: str) -> None:
        """Answer with a line of text."""
        self.send(status, "text/plain; charset=utf-8", f"{text}\n".encode(), headers)

    def send(self, status: int, kind: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        """Answer with content of some type."""
        length = {"Content-Type": kind, "Content-Length": str(len(content)), "Connection": "close"}
        self.start(status, {**(headers or {}), **length})
        if self.command != "HEAD":
            send_in_pieces(self.connection, content)

    def start(self, status: int, headers: dict[str, str]) -> None:
        """Send an answer's status and headers."""
        self.connection.settimeout(REQUEST_SECONDS)
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what `parse_request` refuses like all else, and without repeating what was sent."""
        self.request_version = "HTTP/1.1"  # that of the answer, which for HTTP/0.9 would have no headers
        self.reply(code, "expected an HTTP request")

    def version_string(self) -> str:
        return "gossamer"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are none of the run's business."""
