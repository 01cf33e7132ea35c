"""Keys of agents: one secret, and a public key that has two parts, for CURVE and for signatures (80 characters)."""

import os
from pathlib import Path

from gossamer.errors import FileError, GossamerError, shown
from gossamer.files import MAX_SECRET, check_private, read_text
from gossamer.peers.network.curve import derive_public_key, make_curve_keys
from gossamer.peers.network.z85 import KEY_LENGTH, check_key, is_key
from gossamer.peers.protocol.signatures import check_verify_key, derive_verify_key


def make_agent_keys() -> tuple[str, str]:
    """A public and a secret key."""
    _, secret = make_curve_keys()
    return derive_agent_key(secret), secret


def derive_agent_key(secret: str) -> str:
    """The public key of a secret one, as others are given it."""
    return derive_public_key(secret) + derive_verify_key(secret)


def read_key(path: Path, remedy: str = "make one with gossamer keys") -> str:
    """A secret key from its file, which its owner alone may read."""
    try:
        secret = read_text(path, MAX_SECRET).strip()
    except FileError as error:
        raise GossamerError(f"cannot read the secret key {path}: {error.reason}; {remedy}") from None
    if not is_key(secret):
        raise GossamerError(f"{path}: this is not a secret key of {KEY_LENGTH} characters; {remedy}")
    check_private(path)
    return secret


def write_secret(path: Path, secret: str) -> None:
    """Write a secret key that its owner alone can read; never overwrite one."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
    except FileExistsError:
        raise GossamerError(f"{path} exists; a key that is lost cannot be made again, so move it away first") from None


def split_key(key: object, where: str) -> tuple[str, str]:
    """The CURVE key and the verify key of a public key, or an error that names where it was found."""
    if isinstance(key, str) and len(key) == KEY_LENGTH:
        check_key(key, where)
        raise GossamerError(
            f"{where}: this public key has no verify key yet; print it whole on the agent's machine with "
            "gossamer keys --secret key.secret, and give it here"
        )
    if not isinstance(key, str) or len(key) != 2 * KEY_LENGTH:
        raise GossamerError(
            f"{where}: {shown(key)} is not a public key of {2 * KEY_LENGTH} characters, as gossamer keys prints it"
        )
    return check_key(key[:KEY_LENGTH], where), check_verify_key(key[KEY_LENGTH:], where)
