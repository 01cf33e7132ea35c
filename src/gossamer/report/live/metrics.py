"""Prometheus metrics of a run that goes on, over HTTP: `GET /metrics`, read-only."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence, Set
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gossamer.errors import GossamerError
from gossamer.report.live.access import is_loopback, split_host
from gossamer.report.live.bounded_server import BoundedServer
from gossamer.report.live.feed import Feed
from gossamer.report.live.pace import METRICS_SHARE, rest_after

MAX_REQUESTS = 16  # that are answered at a time; others find their connection closed
MAX_SELECTIONS = 8  # of families that are kept as text
REQUEST_SECONDS = 10.0  # without a byte, after which a connection is closed
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # what every version of Prometheus reads
INSTALL_METRICS = "--metrics needs prometheus-client; install it with: pip install 'gossamer[metrics]'"


@contextlib.contextmanager
def serve_metrics(feed: Feed, address: tuple[str, int]) -> Iterator[str]:
    """Serve the feed's latest view until the context ends; yield the URL. The port 0 is any free one.

    Who can reach the address can read everything that is served: bind it to a network that is trusted.
    """
    try:
        from prometheus_client import CollectorRegistry

        from gossamer.report.live.metric_families import RunCollector
    except ImportError:
        raise GossamerError(INSTALL_METRICS) from None
    registry = CollectorRegistry()
    registry.register(RunCollector(feed))
    server = _listen(address, registry)
    with server.running("metrics"):
        yield f"http://{_bracket(str(server.server_address[0]))}:{server.server_port}/metrics"


def _listen(address: tuple[str, int], registry: Any) -> "_Server":
    host, port = address
    try:
        *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _Server((str(found[0]), port), registry)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise GossamerError(
            f"--metrics cannot listen on {_bracket(host)}:{port}: {reason}; give an address of this machine and a port "
            "that is free, or port 0 for any free one"
        ) from None


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Server(BoundedServer):
    def __init__(self, address: tuple[str, int], registry: Any) -> None:
        self.text = _Text(registry)
        self.is_private = is_loopback(address[0])  # then a browser that a foreign site has misled here is refused
        super().__init__(address, _Handler, MAX_REQUESTS)


class _Text:
    """The registry as text, which is written anew at a pace that costs the run little; those who ask meanwhile get the
    last one."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._written: dict[frozenset[str], tuple[bytes, float]] = {}  # by names, with the time until which it is kept

    def write(self, names: Sequence[str]) -> bytes:
        """All families, or those with some names."""
        from prometheus_client import generate_latest

        wanted = frozenset(name.removesuffix("_total") for name in names)
        with self._lock:
            text, until = self._written.get(wanted, (b"", 0.0))
            if time.monotonic() >= until:
                began = time.thread_time()
                text = generate_latest(_Selection(self._registry, wanted) if wanted else self._registry)
                until = time.monotonic() + rest_after(time.thread_time() - began, METRICS_SHARE)
                if len(self._written) >= MAX_SELECTIONS:
                    self._written.clear()
                self._written[wanted] = text, until
        return text


class _Selection:
    """The families of a registry that have some names."""

    def __init__(self, registry: Any, names: Set[str]) -> None:
        self._registry, self._names = registry, names

    def collect(self) -> Iterator[Any]:
        return (family for family in self._registry.collect() if family.name in self._names)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_SECONDS
    server_version, sys_version = "gossamer", ""

    def do_GET(self) -> None:
        """Answer /metrics; with `name[]` only these families."""
        url, host = urlsplit(self.path), self.headers.get("Host")
        if self.server.is_private and host is not None and not is_loopback(split_host(host)):
            self._answer(421, b"These metrics are for this machine; ask for 127.0.0.1 or localhost.\n")
        elif url.path == "/metrics":
            self._answer(200, self.server.text.write(parse_qs(url.query).get("name[]", [])), CONTENT_TYPE)
        elif url.path == "/":
            self._answer(200, b"Metrics of a Gossamer run: /metrics\n")
        else:
            self._answer(404, b"There is only /metrics here.\n")

    def do_POST(self) -> None:
        """Refuse every method but GET."""
        self._answer(405, b"Only GET is answered.\n", headers={"Allow": "GET"})

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815 - the names that the base class looks for

    def _answer(
        self,
        code: int,
        body: bytes,
        content_type: str = "text/plain; charset=utf-8",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(code)
        about = {"Content-Type": content_type, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        for name, value in (about | {"X-Content-Type-Options": "nosniff"} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scraper asks every few seconds."""
