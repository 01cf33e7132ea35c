"""CURVE keys of ZeroMQ, and the keys that a listener lets in."""

from collections.abc import Mapping

import zmq

from gossamer.errors import GossamerError


def make_curve_keys() -> tuple[str, str]:
    """A public and a secret CURVE key (Z85)."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def derive_public_key(secret: str) -> str:
    """The CURVE public key of a secret key."""
    try:
        return zmq.curve_public(secret.encode()).decode()
    except (ValueError, zmq.ZMQError) as error:
        raise GossamerError(f"this is not a secret key: {error}; make one with gossamer keys") from None


class AllowList:
    """Keys that may complete the handshake, as ZeroMQ's authenticator asks for them: those of neighbours, and of others
    that are admitted so that they can ask to join."""

    def __init__(self, keys: Mapping[str, int]) -> None:
        self.keys, self.admitted = keys, frozenset[str]()

    def callback(self, domain: str, key: bytes) -> bool:
        return key.decode() in self.keys or key.decode() in self.admitted
