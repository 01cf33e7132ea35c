"""Addresses that pages and metrics are served at, or asked for: HOST:PORT as users write them, and URLs."""

import ipaddress
import socket

from gossamer.errors import GossamerError, shown
from gossamer.peers.network.addresses import check_address

LOOPBACK = "127.0.0.1"
WILDCARDS = ("", "0.0.0.0", "::")
HostPort = tuple[str, int]


def read_address(text: str, option: str) -> HostPort:
    """Host and port of HOST:PORT, or of a PORT alone, on this machine; port 0 is any free one."""
    host, _, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else -1
    try:
        check_address(f"{host or LOOPBACK}:{number or 1}", option)
    except GossamerError:
        hint = "; write an IPv6 address in brackets, [::1]:8080" if host.count(":") > 1 else ""
        raise GossamerError(
            f"{option}: expected HOST:PORT, such as 127.0.0.1:8080, or a PORT from 0 to 65535 on this machine, found "
            f"{shown(text)}{hint}"
        ) from None
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, number


def is_loopback(host: str) -> bool:
    """True for a host that is this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def join_address(host: str, port: int) -> str:
    """HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def show_url(host: str, port: int) -> str:
    """The URL under which others reach what is served at a host: if that is every address, the machine's name."""
    return f"http://{join_address(socket.gethostname() if host in WILDCARDS else host, port)}/"
