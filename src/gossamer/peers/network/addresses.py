"""Addresses of agents, checked where they are written and where they are read."""

import ipaddress
import re
from dataclasses import dataclass

from gossamer.errors import GossamerError

LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE | re.ASCII)  # RFC 1123; containers have _


@dataclass(frozen=True)
class Contact:
    """An agent's address, host:port, and the CURVE public key (Z85) that authenticates it."""

    address: str
    key: str | None  # None on a network that is trusted


def check_address(address: str, where: str) -> str:
    """Return host:port as it is, or raise an error that names where it was found.

    The host is a name in ASCII (an international one in its IDNA form, xn--...), an IPv4 address, or an IPv6 address
    in brackets; the port is 1 to 65535.
    """
    host, _, port = address.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 and port[0] != "0" else 0
    if not 0 < number < 65536 or not _is_host(host):
        hint = ""
        if not address.isascii():
            hint = "; write an international name in its IDNA form, xn--..."
        elif host.count(":") > 1 and not host.startswith("["):
            hint = "; write an IPv6 address in brackets, [::1]:5555"
        raise GossamerError(f"{where}: expected an address host:port, got {address[:300]!a}{hint}")
    return address


def check_distinct(contacts: list[Contact], where: str) -> None:
    """Require that no two agents share an address or a key."""
    for what in ("address", "key"):
        seen: set[str] = set()
        for value in (getattr(contact, what) for contact in contacts):
            if value is not None and value in seen:
                raise GossamerError(f"{where}: two agents have the {what} {value}; give each its own")
            seen.add(value)


def _is_host(host: str) -> bool:
    if host.startswith("[") and host.endswith("]"):
        number, percent, scope = host[1:-1].partition("%")
        return _is_ip(number, 6) and (not percent or bool(LABEL.fullmatch(scope)))
    if re.fullmatch(r"[0-9.]+", host):
        return _is_ip(host, 4)
    labels = host.removesuffix(".").split(".")
    return len(host) <= 253 and all(LABEL.fullmatch(label) for label in labels)


def _is_ip(text: str, kind: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == kind
    except ValueError:
        return False
