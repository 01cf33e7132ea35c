"""The HTTP server under page and metrics: bounded connections, and a thread that sleeps until somebody asks."""

import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any


class BoundedServer(ThreadingHTTPServer):
    """A server with a thread for each connection, of which there are at most `most`; others are closed at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = 0.0

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], most: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(most)
        self._stopping, self._stop = socket.socketpair()
        super().__init__(address, handler)

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
        """Close the listening socket, also where binding it has failed."""
        super().server_close()
        self._stopping.close()
        self._stop.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
