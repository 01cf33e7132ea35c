"""Access to a server: requests that name a host of this machine, and that bring the token or the cookie for it.

A browser that a foreign site has misled to this address by its own name (DNS rebinding) sends that name as Host, and is
refused. The cookie is a random number of this server, so that the token itself is not kept in the browser.
"""

import hmac
import ipaddress
import re
import secrets
import socket
import threading
import time
from collections import deque
from functools import cached_property

from gossamer.report.live.addresses import WILDCARDS, is_loopback

MAX_TRIES = 10  # wrong tokens of one address in a minute
MAX_REMEMBERED = 10_000  # wrong tokens, of all addresses
TRY_SECONDS = 60.0
HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")
PRIVATE_DOMAINS = (".local", ".internal")  # in which nobody can register a name (RFC 6762; ICANN 2024)


def split_host(given: str) -> str:
    """The host of a Host header, without its port; "" if it is none."""
    found = HOST.fullmatch(given.strip().lower())
    return (found[1] or found[2]) if found else ""


class Hosts:
    """Hosts under which a server may be asked: loopback and the one that it is bound to.

    Beyond loopback also any address, the machine's name, and names that no foreign site can have: those without a
    domain, or in a private one, such as containers have.
    """

    def __init__(self, bound: str) -> None:
        self._bound = bound.lower()
        self._own_name = socket.gethostname().lower()

    @cached_property
    def _full_name(self) -> str:
        """The machine's name with its domain; it may take a while to find."""
        return socket.getfqdn().lower()

    def allow(self, given: str | None) -> bool:
        """True for a Host header that names an allowed host."""
        host = split_host(given or "")
        if not host or is_loopback(host) or host == self._bound:
            return bool(host)
        if is_loopback(self._bound):
            return False
        try:
            ipaddress.ip_address(host)
        except ValueError:
            if "." not in host or host == self._own_name or host.endswith(PRIVATE_DOMAINS):
                return True
            return host.startswith(f"{self._own_name}.") and host == self._full_name
        return True

    def describe(self) -> str:
        """Allowed hosts, for whoever has asked for another."""
        if is_loopback(self._bound):
            return "127.0.0.1 or localhost"
        named = self._own_name if self._bound in WILDCARDS else self._bound
        return f"an address of the machine, or as {named}"


class TokenGate:
    """The token of a page, and the cookie of browsers that have brought it. Without a token everyone may enter."""

    def __init__(self, token: str | None, port: int) -> None:
        self._token = None if token is None else token.encode()
        self._session = secrets.token_urlsafe(32)
        self._name = f"gossamer-{port}"  # cookies are not told apart by port
        self._wrong: deque[tuple[float, str]] = deque(maxlen=MAX_REMEMBERED)
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """True without a token."""
        return self._token is None

    def admit(self, cookies: str | None) -> bool:
        """True for a Cookie header that has the cookie of this page, whatever else other services have put into it."""
        if self._token is None:
            return True
        pairs = (one.strip().partition("=") for one in (cookies or "").split(";"))
        given = [value for name, _, value in pairs if name == self._name]
        return any(hmac.compare_digest(value.encode(), self._session.encode()) for value in given)

    def is_blocked(self, address: str) -> bool:
        """True for an address from which too many wrong tokens came lately; others are not kept out by it."""
        since = time.monotonic() - TRY_SECONDS
        with self._lock:
            return sum(one == address and at > since for at, one in self._wrong) >= MAX_TRIES

    def try_token(self, given: str, address: str) -> bool:
        """True for the right token; a wrong one is remembered."""
        right = self._token is not None and hmac.compare_digest(given.encode(), self._token)
        if not right:
            with self._lock:
                self._wrong.append((time.monotonic(), address))
        return right

    def write_cookie(self) -> str:
        """The Set-Cookie header for a browser that has brought the token.

        It is sent when a link on another site is followed (Lax), which a page that is only read can allow.
        """
        return f"{self._name}={self._session}; Path=/; HttpOnly; SameSite=Lax"
