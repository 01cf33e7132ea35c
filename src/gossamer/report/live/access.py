"""Who may see a page: requests that name a host of this machine, and that bring the token or the cookie for it.

A browser that a foreign site has misled to this address by its own name (DNS rebinding) sends that name as Host, and is
refused. The cookie is a random number of this server, so that the token itself is not kept in the browser.
"""

import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections import deque
from http.cookies import CookieError, SimpleCookie

MAX_TRIES = 10  # wrong tokens of one address in a minute
MAX_ALL_TRIES = 100  # of all addresses
TRY_SECONDS = 60.0
WILDCARDS = ("", "0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    """Whether a host that a page is served at is this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_host(given: str) -> str:
    """The host of a Host header, without its port."""
    text = given.strip().lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


class Hosts:
    """Hosts under which a page may be asked for: loopback, the one that it is served at, and where that is every
    address of the machine, its name and any address (but no other name)."""

    def __init__(self, bound: str) -> None:
        self._bound = bound.lower()
        self._own_name = socket.gethostname().lower()

    def allow(self, given: str | None) -> bool:
        if given is None:
            return False
        host = split_host(given)
        if is_loopback(host) or host == self._bound:
            return True
        if self._bound not in WILDCARDS:
            return False
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host == self._own_name
        return True


class Door:
    """The token of a page, and the cookie of browsers that have brought it. Without a token everyone may enter."""

    def __init__(self, token: str | None, port: int) -> None:
        self._token = None if token is None else token.encode()
        self._session = secrets.token_urlsafe(32)
        self._name = f"gossamer-{port}"  # cookies are not told apart by port
        self._wrong: deque[tuple[float, str]] = deque(maxlen=MAX_ALL_TRIES)
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self._token is None

    def admit(self, cookies: str | None) -> bool:
        """Whether a Cookie header has the cookie of this page."""
        if self._token is None:
            return True
        try:
            found = SimpleCookie(cookies or "").get(self._name)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._session.encode())

    def is_blocked(self, address: str) -> bool:
        """Whether too many wrong tokens came lately, from this address or from all."""
        since = time.monotonic() - TRY_SECONDS
        with self._lock:
            recent = [one for at, one in self._wrong if at > since]
        return len(recent) >= MAX_ALL_TRIES or recent.count(address) >= MAX_TRIES

    def try_token(self, given: str, address: str) -> bool:
        """Whether a token is the right one; a wrong one is remembered."""
        right = self._token is not None and hmac.compare_digest(given.encode(), self._token)
        if not right:
            with self._lock:
                self._wrong.append((time.monotonic(), address))
        return right

    def write_cookie(self) -> str:
        """The Set-Cookie header for who has brought the token."""
        return f"{self._name}={self._session}; Path=/; HttpOnly; SameSite=Strict"
