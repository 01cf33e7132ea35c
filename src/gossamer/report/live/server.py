"""The server of a run's live page: read-only, self-contained, for few browsers at a time.

    /               the page, or the form that asks for the token
    /assets/NAME    its style sheets and scripts
    /events         server-sent events: a `snapshot` with the whole view, then an `update` with what is new (changes.py)
    /view.json      the latest view
    /login          takes the form (POST)

Each connection has a thread and one request. What it sends must be complete, and small, in few seconds; connections and
streams are bounded, so that nobody keeps others out for long.
"""

import io
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gossamer.errors import GossamerError
from gossamer.report.live.access import WILDCARDS, Door, Hosts
from gossamer.report.live.bounded_server import BoundedServer
from gossamer.report.live.changes import snapshot
from gossamer.report.live.feed import Feed
from gossamer.report.live.streams import MAX_STREAMS, Streams
from gossamer.report.web.assets import SCRIPTS, STYLES, as_json, read_asset

MAX_HEAD = 16_384  # bytes of a request line and its headers
MAX_BODY = 4_096  # bytes of a form
MAX_CONNECTIONS = 128
PAGE_TIMEOUT = 10.0  # seconds for a whole request, and for a browser to take a part of an answer
STOP = 2.0  # seconds that streams have to end
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
CONTENT_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "json": "application/json"}
ASSETS = (*STYLES, "live.css", *SCRIPTS, "live.js")


@contextmanager
def serve_page(feed: Feed, address: tuple[str, int], token: str | None) -> Iterator[str]:
    """Serve the live page of a feed while the context lasts; yields its URL.

    Port 0 takes a free one. With a token, everything but the form that asks for it is refused until a browser has
    brought it, by the form or by `<url>?token=<token>`. An address that is not loopback should have one.
    """
    host, port = address
    try:
        server = _PageServer(feed, host, port, token)
    except (OSError, OverflowError) as error:
        where = f"{host or '*'}:{port}"
        raise GossamerError(
            f"cannot serve the page at {where}: {getattr(error, 'strerror', None) or error}; give an address of this "
            "machine and a port that is free, or port 0 for any free one"
        ) from None
    with server.running("page"):
        try:
            yield server.url
        finally:
            server.streams.stop(STOP)


class _PageServer(BoundedServer):
    def __init__(self, feed: Feed, host: str, port: int, token: str | None) -> None:
        self.feed = feed
        self.streams = Streams(feed)
        self.assets = {name: read_asset(name).encode() for name in (*ASSETS, "live.html", "login.html")}
        super().__init__((host, port), _PageHandler, MAX_CONNECTIONS)
        self.hosts = Hosts(host)
        self.door = Door(token, self.server_port)
        shown = socket.gethostname() if host in WILDCARDS else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_port}/"


class _RequestError(Exception):
    """A request that is larger or slower than is allowed."""


class _PageHandler(BaseHTTPRequestHandler):
    server: _PageServer
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        """Read one request whole, within bounds of size and time, and answer it."""
        self.close_connection = True
        self.request_version, self.command, self.requestline = "HTTP/1.1", "", ""
        deadline = time.monotonic() + PAGE_TIMEOUT
        try:
            head, rest = self._read_head(deadline)
            self.rfile.close()
            self.rfile = io.BytesIO(head)
            self.raw_requestline = self.rfile.readline()
            if not head or not self.parse_request():
                return
            self.close_connection = True
            if self.request_version == "HTTP/0.9":
                self.request_version = "HTTP/1.0"
            self._answer(rest, deadline)
        except _RequestError as error:
            self._reply(431, str(error))

    def _receive(self, deadline: float) -> bytes:
        """Some bytes, or none at the end; `recv` alone would have a deadline for each byte."""
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.connection], [], [], left)[0]:
            raise _RequestError(f"expected the whole request within {PAGE_TIMEOUT:g} s")
        received: bytes = self.connection.recv(65_536)
        return received

    def _read_head(self, deadline: float) -> tuple[bytes, bytes]:
        read = b""
        while b"\r\n\r\n" not in read and b"\n\n" not in read:
            if len(read) > MAX_HEAD:
                raise _RequestError(f"expected at most {MAX_HEAD} bytes of request line and headers")
            part = self._receive(deadline)
            if not part:
                return b"", b""
            read += part
        end = min(place for mark in (b"\r\n\r\n", b"\n\n") if (place := read.find(mark) + len(mark)) >= len(mark))
        if end > MAX_HEAD:
            raise _RequestError(f"expected at most {MAX_HEAD} bytes of request line and headers")
        return read[:end], read[end:]

    def _answer(self, rest: bytes, deadline: float) -> None:
        if len(self.headers.get_all("Host", [])) != 1 or not self.server.hosts.allow(self.headers["Host"]):
            return self._reply(421, "this page is not served under that host name; use its address, or localhost")
        target = urlsplit(self.path)
        if target.netloc or not target.path.startswith("/"):
            return self._reply(400, "expected a path")
        if target.path == "/login" and self.command == "POST":
            return self._log_in(rest, deadline)
        if self.command not in ("GET", "HEAD"):
            return self._reply(405, "this page is read-only", Allow="GET, HEAD")
        given = parse_qs(target.query).get("token")
        if target.path == "/" and given and not self.server.door.is_open:
            return self._try(given[0])
        name = target.path.removeprefix("/assets/")
        if target.path in (f"/assets/{style}" for style in STYLES):  # the form's own style sheets, without secrets
            return self._send(200, CONTENT_TYPES["css"], self.server.assets[name])
        if not self.server.door.admit(self.headers["Cookie"]):
            return self._send_form(401)
        if target.path == "/":
            return self._send(200, CONTENT_TYPES["html"], self.server.assets["live.html"])
        if target.path == "/view.json":
            _, view = self.server.feed.latest()
            return self._send(200, CONTENT_TYPES["json"], as_json(None if view is None else snapshot(view)).encode())
        if target.path == "/events":
            return self._stream()
        if target.path == f"/assets/{name}" and name in ASSETS:
            return self._send(200, CONTENT_TYPES[name.rpartition(".")[2]], self.server.assets[name])
        return self._reply(404, "no such page")

    def _stream(self) -> None:
        with self.server.streams.reserve() as free:
            if not free:
                return self._reply(
                    503, f"{MAX_STREAMS} browsers watch this run already; close one", **{"Retry-After": "5"}
                )
            self.connection.settimeout(PAGE_TIMEOUT)
            self._start(200, {"Content-Type": "text/event-stream; charset=utf-8", "Connection": "close"})
            if self.command != "HEAD":
                self.server.streams.run(self.connection)
        return None

    def _log_in(self, rest: bytes, deadline: float) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return self._reply(413, f"expected a form of at most {MAX_BODY} bytes")
        while len(rest) < int(length):
            part = self._receive(deadline)
            if not part:
                return None
            rest += part
        return self._try(parse_qs(rest.decode("ascii", "replace")).get("token", [""])[0].strip())

    def _try(self, token: str) -> None:
        door, address = self.server.door, str(self.client_address[0])
        if door.is_blocked(address):
            return self._reply(429, "too many wrong tokens; wait a minute", **{"Retry-After": "60"})
        if door.is_open:
            return self._start(303, {"Location": "./", "Content-Length": "0", "Connection": "close"})
        if not door.try_token(token, address):
            return self._send_form(401, b"That is not the token.")
        cookie = {"Set-Cookie": door.write_cookie(), "Location": "./"}
        return self._start(303, {**cookie, "Content-Length": "0", "Connection": "close"})

    def _send_form(self, status: int, note: bytes = b"") -> None:
        self._send(status, CONTENT_TYPES["html"], self.server.assets["login.html"].replace(b"<!-- note -->", note))

    def _reply(self, status: int, text: str, **headers: str) -> None:
        self._send(status, "text/plain", f"{text}\n".encode(), headers)

    def _send(self, status: int, kind: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.connection.settimeout(PAGE_TIMEOUT)
        length = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content)), "Connection": "close"}
        self._start(status, {**(headers or {}), **length})
        if self.command != "HEAD":
            self.connection.sendall(content)

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what `parse_request` refuses like all else, and without repeating what was sent."""
        self.request_version = "HTTP/1.1"  # that of the answer, which for HTTP/0.9 would have no headers
        self._reply(code, "expected an HTTP request")

    def version_string(self) -> str:
        return "gossamer"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are none of the run's business."""
