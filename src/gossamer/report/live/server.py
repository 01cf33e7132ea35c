"""The server of a run's live page: read-only, self-contained, for few browsers at a time.

    /               the page, or the form that asks for the token
    /assets/NAME    its style sheets and scripts
    /events         server-sent events: a `snapshot` with the whole view, then an `update` with what is new (changes.py)
    /view.json      the latest view
    /login          takes the form (POST)

Each connection has a thread and one request (request_handler.py). Connections and streams are bounded, so that nobody
keeps others out for long.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, parse_qs

from gossamer.report.live.access import TokenGate
from gossamer.report.live.addresses import HostPort
from gossamer.report.live.bounded_server import BoundedServer
from gossamer.report.live.changes import snapshot
from gossamer.report.live.feed import Feed
from gossamer.report.live.request_handler import RequestHandler
from gossamer.report.live.streams import MAX_STREAMS, Streams
from gossamer.report.web.assets import SCRIPTS, STYLES, as_json, read_asset

MAX_BODY = 4_096  # bytes of a form
MAX_CONNECTIONS = 128
STOP = 2.0  # seconds that streams have to end
CONTENT_TYPES = {
    ending: f"{kind}; charset=utf-8"
    for ending, kind in (
        ("html", "text/html"),
        ("css", "text/css"),
        ("js", "text/javascript"),
        ("json", "application/json"),
    )
}
ASSETS = (*STYLES, "live.css", *SCRIPTS, "live.js")


@contextmanager
def serve_page(feed: Feed, address: tuple[str, int], token: str | None) -> Iterator[str]:
    """Serve the live page of a feed while the context lasts; yields its URL.

    Port 0 takes a free one. With a token, everything but the form that asks for it is refused until a browser has
    brought it, by the form or by `<url>?token=<token>`. An address that is not loopback should have one.
    """
    server = _PageServer(feed, address, token)
    with server.running("page"):
        try:
            yield server.url
        finally:
            server.streams.stop(STOP)


class _PageServer(BoundedServer):
    def __init__(self, feed: Feed, address: HostPort, token: str | None) -> None:
        self.feed = feed
        self.streams = Streams(feed)
        self.assets = {name: read_asset(name).encode() for name in (*ASSETS, "live.html", "login.html")}
        super().__init__("the page", address, _PageHandler, MAX_CONNECTIONS)
        self.gate = TokenGate(token, self.server_port)


class _PageHandler(RequestHandler):
    server: _PageServer

    def answer(self, target: SplitResult) -> None:
        """Answer with the page, a part of it, or the form that asks for the token."""
        if target.path == "/login" and self.command == "POST":
            return self._log_in()
        if self.command not in ("GET", "HEAD"):
            return self.reply(405, "this page is read-only", Allow="GET, HEAD")
        given = parse_qs(target.query).get("token")
        if target.path == "/" and given and not self.server.gate.is_open:
            return self._try(given[0])
        name = target.path.removeprefix("/assets/")
        if target.path in (f"/assets/{style}" for style in STYLES):  # the form's own style sheets, without secrets
            return self.send(200, CONTENT_TYPES["css"], self.server.assets[name])
        if not self.server.gate.admit(self.headers["Cookie"]):
            return self._send_form(401)
        if target.path == "/":
            return self.send(200, CONTENT_TYPES["html"], self.server.assets["live.html"])
        if target.path == "/view.json":
            _, view = self.server.feed.latest()
            return self.send(200, CONTENT_TYPES["json"], as_json(None if view is None else snapshot(view)).encode())
        if target.path == "/events":
            return self._stream()
        if target.path == f"/assets/{name}" and name in ASSETS:
            return self.send(200, CONTENT_TYPES[name.rpartition(".")[2]], self.server.assets[name])
        return self.reply(404, "no such page")

    def _stream(self) -> None:
        with self.server.streams.reserve() as free:
            if not free:
                return self.reply(
                    503, f"{MAX_STREAMS} browsers watch this run already; close one", **{"Retry-After": "5"}
                )
            self.start(200, {"Content-Type": "text/event-stream; charset=utf-8", "Connection": "close"})
            if self.command != "HEAD":
                self.server.streams.run(self.connection)
        return None

    def _log_in(self) -> None:
        form = self.read_body(MAX_BODY)
        if form is None:
            return self.reply(413, f"expected a form of at most {MAX_BODY} bytes")
        return self._try(parse_qs(form.decode("ascii", "replace")).get("token", [""])[0].strip())

    def _try(self, token: str) -> None:
        gate, address = self.server.gate, str(self.client_address[0])
        if gate.admit(self.headers["Cookie"]):
            return self.start(303, {"Location": "./", "Content-Length": "0", "Connection": "close"})
        if gate.is_blocked(address):
            return self.reply(429, "too many wrong tokens; wait a minute", **{"Retry-After": "60"})
        if not gate.try_token(token, address):
            return self._send_form(401, b"That is not the token.")
        cookie = {"Set-Cookie": gate.write_cookie(), "Location": "./"}
        return self.start(303, {**cookie, "Content-Length": "0", "Connection": "close"})

    def _send_form(self, status: int, note: bytes = b"") -> None:
        self.send(status, CONTENT_TYPES["html"], self.server.assets["login.html"].replace(b"<!-- note -->", note))
