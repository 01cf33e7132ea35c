"""Signatures of agents (Ed25519, by PyNaCl): what an agent states of itself, others can pass on and nobody can change.

An agent has one secret, that of its CURVE pair; its signing key is derived from it. Its public key, as `gossamer keys`
prints it, is 80 characters of Z85: the CURVE public key, then the verify key.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import Z85, is_public_key

CURVE = 40  # characters of the CURVE public key, and of the verify key behind it
SIZE = 64  # bytes of a signature
_PERSON = b"gossamer signing"  # of the hash that derives a signing key
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = Z85.encode()


class Signatures(Protocol):
    """What signs an agent's statements and verifies those of all agents."""

    @property
    def size(self) -> int:
        """Bytes of a signature."""
        ...

    def sign(self, statement: bytes) -> bytes: ...

    def holds(self, agent: int, statement: bytes, signature: bytes) -> bool:
        """Whether the agent has signed the statement."""
        ...


class Unsigned:
    """For a network that is trusted: statements without a signature, which anyone can make."""

    size = 0

    def sign(self, statement: bytes) -> bytes:
        return b""

    def holds(self, agent: int, statement: bytes, signature: bytes) -> bool:
        return True


UNSIGNED = Unsigned()


@dataclass(frozen=True)
class Keyring:
    """An agent's signing key and the verify keys of all m agents."""

    signing: SigningKey
    verify: tuple[VerifyKey, ...]

    size = SIZE

    def sign(self, statement: bytes) -> bytes:
        return self.signing.sign(statement).signature

    def holds(self, agent: int, statement: bytes, signature: bytes) -> bool:
        try:
            self.verify[agent].verify(statement, signature)
        except BadSignatureError:
            return False
        return True


def make_keyring(secret: str, members: Sequence[str | None], agent: int) -> Keyring:
    """The keyring of an agent from its secret key and the verify keys of all agents (Z85), its own among them."""
    unknown = [k for k, key in enumerate(members) if key is None and k != agent]
    if unknown:
        raise GossamerError(
            f"the shard of agent {agent} has no verify key of agent {unknown[0]}; every agent must know those of all: "
            "make the shards again with the public keys of all agents, or use --insecure on a network that you trust"
        )
    mine = verify_key(secret)
    if members[agent] not in (None, mine):
        raise GossamerError(f"the secret key is not that of the verify key that the others know of agent {agent}")
    keys = [mine if key is None else key for key in members]
    return Keyring(_signing(secret), tuple(VerifyKey(_decoded(key)) for key in keys))


def verify_key(secret: str) -> str:
    """The verify key (Z85) of the agent with this CURVE secret (Z85)."""
    return base64.b85encode(bytes(_signing(secret).verify_key)).translate(bytes.maketrans(_RFC1924, _Z85)).decode()


def check_verify_key(key: str, where: str) -> str:
    """A verify key as it is, or an error that says where it stood."""
    try:
        VerifyKey(_decoded(key))
    except ValueError:
        raise GossamerError(f"{where}: {key!r} is not a verify key of {CURVE} characters; copy it again") from None
    return key


def _signing(secret: str) -> SigningKey:
    try:
        content = _decoded(secret)
    except ValueError:
        raise GossamerError("this is not a secret key; make one with gossamer keys") from None
    return SigningKey(hashlib.blake2b(content, digest_size=32, person=_PERSON).digest())


def _decoded(key: str) -> bytes:
    """The 32 bytes of a key in Z85."""
    if not is_public_key(key):
        raise ValueError("no key in Z85")
    return base64.b85decode(key.encode().translate(bytes.maketrans(_Z85, _RFC1924)))
