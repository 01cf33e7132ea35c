"""Keys of agents: one secret, and a public key that has two parts, for CURVE and for signatures (80 characters)."""

import os
from pathlib import Path

from gossamer.errors import FileError, GossamerError, shown
from gossamer.files import MOST_SECRET, check_private
from gossamer.peers.network.sockets import check_key, new_keys, public_of
from gossamer.peers.protocol.signatures import CURVE, check_verify_key, verify_key
from gossamer.reading import read_text


def make_keys() -> tuple[str, str]:
    """A public and a secret key."""
    _, secret = new_keys()
    return public_key(secret), secret


def public_key(secret: str) -> str:
    """The public key of a secret one, as others are given it."""
    return public_of(secret) + verify_key(secret)


def read_key(path: Path, remedy: str = "make one with gossamer keys") -> str:
    """A secret key from its file, which its owner alone may read."""
    try:
        secret = read_text(path, MOST_SECRET).strip()
    except FileError as error:
        raise GossamerError(f"cannot read the secret key {path}: {error.reason}; {remedy}") from None
    check_private(path)
    return secret


def write_secret(path: Path, secret: str) -> None:
    """A secret key that its owner alone can read; one that exists is never overwritten."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
    except FileExistsError:
        raise GossamerError(f"{path} exists; a key that is lost cannot be made again, so move it away first") from None


def split_key(key: object, where: str) -> tuple[str, str]:
    """The CURVE key and the verify key of a public key, or an error that says where it stood."""
    if isinstance(key, str) and len(key) == CURVE:
        check_key(key, where)
        raise GossamerError(
            f"{where}: this public key has no verify key yet; print it whole on the agent's machine with "
            "gossamer keys --secret key.secret, and give it here"
        )
    if not isinstance(key, str) or len(key) != 2 * CURVE:
        raise GossamerError(
            f"{where}: {shown(key)} is not a public key of {2 * CURVE} characters, as gossamer keys prints it"
        )
    return check_key(key[:CURVE], where), check_verify_key(key[CURVE:], where)
