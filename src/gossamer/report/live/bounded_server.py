"""The HTTP server under page and metrics: bounded connections, and a thread that sleeps until somebody asks.

Where all connections are taken, a new one takes the place of the oldest that has not yet sent its whole request; so
those that never send one keep nobody out.
"""

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from gossamer.errors import GossamerError
from gossamer.report.live.access import Hosts
from gossamer.report.live.addresses import HostPort, join_address, show_url

logger = logging.getLogger(__name__)


class BoundedServer(ThreadingHTTPServer):
    """A server with a thread for each connection, of which there are at most `most`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = 0.0

    def __init__(self, what: str, address: HostPort, handler: type[BaseHTTPRequestHandler], most: int) -> None:
        host, port = address
        self.hosts = Hosts(host)
        self._most = most
        self._taken: dict[Any, bool] = {}  # by connection, oldest first: has its request been read whole?
        self._lock = threading.Lock()
        self._has_failed = False
        self._stopping, self._stop = socket.socketpair()
        try:
            self.address_family, place = _resolve(host, port)
            super().__init__(place, handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            self._close_pair()
            raise GossamerError(
                f"cannot serve {what} at {join_address(host, port)}: {reason}; give an address of this machine and a "
                "port that is free, or port 0 for any free one"
            ) from None
        self.url = show_url(host, self.server_port)

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Accept connections in a thread of some name while the context lasts."""
        thread = threading.Thread(target=self._accept, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.sendall(b".")
            thread.join()
            self.server_close()

    def _accept(self) -> None:
        """Accept until stopped: `serve_forever` would wake every fraction of a second to see whether it is."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._stopping, selectors.EVENT_READ)
            while all(key.fileobj is self for key, _ in selector.select()):
                self.handle_request()

    def server_bind(self) -> None:
        """Bind without the look-up of the machine's full name that HTTPServer makes, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    def server_close(self) -> None:
        """Close all sockets of the server."""
        super().server_close()
        self._close_pair()

    def _close_pair(self) -> None:
        self._stopping.close()
        self._stop.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, if there is a place."""
        if not self._reserve(request):
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # the thread could not start
            self._release(request)
            raise
        return None

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._release(request)

    def keep(self, request: Any) -> None:
        """Keep the place of a connection that has sent its whole request."""
        with self._lock:
            if request in self._taken:
                self._taken[request] = True

    def _reserve(self, request: Any) -> bool:
        with self._lock:
            if len(self._taken) >= self._most:
                oldest = next((one for one, is_whole in self._taken.items() if not is_whole), None)
                if oldest is None:
                    return False
                del self._taken[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # which ends its thread
            self._taken[request] = False
            return True

    def _release(self, request: Any) -> None:
        with self._lock:
            self._taken.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the first failure for who looks for it; nobody can fill the run's log by asking."""
        if not self._has_failed:
            self._has_failed = True
            logger.debug("a connection ended with an error; further ones are not logged", exc_info=True)


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """The address of a host to bind to; an IPv4 one if there is one."""
    found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, (number, _, *scope) = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, (number, port, *scope)  # getaddrinfo would take a port that is too large, modulo 65536
