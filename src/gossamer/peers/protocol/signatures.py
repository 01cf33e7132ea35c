"""Signatures of agents: a statement that an agent has signed can be passed on by others and changed by nobody.

Ed25519 (Bernstein, Duif, Lange, Schwabe, Yang 2012, "High-speed high-security signatures"), by PyNaCl. An agent has one
secret, that of its CURVE pair; its signing key is derived from it. Its public key, as `gossamer keys` prints it, is 80
characters of Z85: the CURVE public key, then the verify key.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from gossamer.errors import GossamerError
from gossamer.peers.network.z85 import KEY_LENGTH, decode_key, encode_key, is_key

SIGNATURE_SIZE = 64  # bytes
_PERSON = b"gossamer signing"  # personalisation of the hash that derives a signing key


class Signatures(Protocol):
    """Sign an agent's statements and verify those of all agents."""

    @property
    def size(self) -> int:
        """Bytes of a signature."""
        ...

    def sign(self, statement: bytes) -> bytes: ...

    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        """Return whether the agent has signed the statement."""
        ...


class Unsigned:
    """Empty signatures, for a network that is trusted: anyone can make a statement."""

    size = 0

    def sign(self, statement: bytes) -> bytes:
        return b""

    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        return True


UNSIGNED = Unsigned()


@dataclass(frozen=True)
class Keyring:
    """An agent's signing key and the verify keys of all m agents."""

    signing: SigningKey
    verify: tuple[VerifyKey, ...]

    size = SIGNATURE_SIZE

    def sign(self, statement: bytes) -> bytes:
        return self.signing.sign(statement).signature

    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        try:
            self.verify[agent].verify(statement, signature)
        except BadSignatureError:
            return False
        return True


def make_keyring(secret: str, verify_keys: Sequence[str | None], agent: int) -> Keyring:
    """The keyring of an agent from its secret key and the verify keys of all agents (Z85), its own among them."""
    unknown = [k for k, key in enumerate(verify_keys) if key is None and k != agent]
    if unknown:
        raise GossamerError(
            f"the shard of agent {agent} has no verify key of agent {unknown[0]}; every agent must know those of all: "
            "make the shards again with the public keys of all agents, or use --insecure on a network that you trust"
        )
    own = derive_verify_key(secret)
    if verify_keys[agent] not in (None, own):
        raise GossamerError(f"the secret key is not that of the verify key that the others know of agent {agent}")
    keys = [own if key is None else key for key in verify_keys]
    return Keyring(_derive_signing_key(secret), tuple(VerifyKey(decode_key(key)) for key in keys))


def make_verifier(secret: str, verify_keys: Sequence[str]) -> Keyring:
    """The keyring of an agent that may be no member of those with these keys (Z85), or one with another key."""
    return Keyring(_derive_signing_key(secret), tuple(VerifyKey(decode_key(key)) for key in verify_keys))


def derive_verify_key(secret: str) -> str:
    """The verify key (Z85) of the agent with this CURVE secret (Z85)."""
    return encode_key(bytes(_derive_signing_key(secret).verify_key))


def check_verify_key(key: str, where: str) -> str:
    """A verify key as it is, or an error that names where it was found."""
    if not is_key(key):
        raise GossamerError(f"{where}: {key!r} is not a verify key of {KEY_LENGTH} characters; copy it again")
    return key


def _derive_signing_key(secret: str) -> SigningKey:
    try:
        content = decode_key(secret)
    except ValueError:
        raise GossamerError("this is not a secret key; make one with gossamer keys") from None
    return SigningKey(hashlib.blake2b(content, digest_size=32, person=_PERSON).digest())
