"""Signatures of agents (Ed25519, by PyNaCl): what an agent states of itself, others can pass on and nobody can change.

An agent has one secret, that of its CURVE pair; its signing key is derived from it. Its public key, as `gossamer keys`
prints it, is 80 characters of Z85: the CURVE public key, then the verify key.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from gossamer.errors import GossamerError
from gossamer.peers.network.z85 import KEY_LENGTH, decode_key, encode_key, is_key

SIZE = 64  # bytes of a signature
_PERSON = b"gossamer signing"  # of the hash that derives a signing key


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
    return Keyring(_signing(secret), tuple(VerifyKey(decode_key(key)) for key in keys))


def verify_key(secret: str) -> str:
    """The verify key (Z85) of the agent with this CURVE secret (Z85)."""
    return encode_key(bytes(_signing(secret).verify_key))


def check_verify_key(key: str, where: str) -> str:
    """A verify key as it is, or an error that says where it stood."""
    if not is_key(key):
        raise GossamerError(f"{where}: {key!r} is not a verify key of {KEY_LENGTH} characters; copy it again")
    return key


def _signing(secret: str) -> SigningKey:
    try:
        content = decode_key(secret)
    except ValueError:
        raise GossamerError("this is not a secret key; make one with gossamer keys") from None
    return SigningKey(hashlib.blake2b(content, digest_size=32, person=_PERSON).digest())
