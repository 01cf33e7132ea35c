"""Prometheus metrics of a run that goes on, over HTTP: `GET /metrics`, read-only."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence, Set
from typing import Any
from urllib.parse import SplitResult, parse_qs

from gossamer.errors import GossamerError
from gossamer.report.live.addresses import HostPort
from gossamer.report.live.bounded_server import BoundedServer
from gossamer.report.live.feed import Feed
from gossamer.report.live.pace import METRICS_SHARE, rest_after
from gossamer.report.live.request_handler import RequestHandler

MAX_REQUESTS = 16  # that are answered at a time
MAX_SELECTIONS = 8  # of families that are kept as text
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # what every version of Prometheus reads
INSTALL_METRICS = "--metrics needs prometheus-client; install it with: pip install 'gossamer[metrics]'"


@contextlib.contextmanager
def serve_metrics(feed: Feed, address: HostPort) -> Iterator[str]:
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
    server = _Server(address, registry)
    with server.running("metrics"):
        yield f"{server.url}metrics"


class _Server(BoundedServer):
    def __init__(self, address: HostPort, registry: Any) -> None:
        self.text = _Text(registry)
        super().__init__("the metrics", address, _Handler, MAX_REQUESTS)


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


class _Handler(RequestHandler):
    server: _Server

    def answer(self, target: SplitResult) -> None:
        """Answer /metrics; with `name[]` only these families."""
        if self.command != "GET":
            return self.reply(405, "only GET is answered", Allow="GET")
        if target.path == "/metrics":
            names = parse_qs(target.query).get("name[]", [])
            return self.send(200, CONTENT_TYPE, self.server.text.write(names))
        if target.path == "/":
            return self.reply(200, "metrics of a Gossamer run: /metrics")
        return self.reply(404, "there is only /metrics here")
