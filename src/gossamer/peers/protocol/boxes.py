"""Sealed boxes: rows for an agent without a link, which the agents that pass them on cannot read or change unnoticed.

Every box has a key of its own, which BLAKE2b derives from the X25519 secret of its two ends (pads.py), the run, the
session, the number of the exchange in that session, its plan, step, phase and index, and the route. XSalsa20 and
Poly1305 encrypt and authenticate the rows with it (Bernstein 2005, "The Poly1305-AES message-authentication code";
Bernstein 2011, "Extending the Salsa20 nonce"). So a box opens at its place alone: one that was changed, or that belongs
to another exchange, step, session, run or route, does not. An agent enters no session twice, and in a session every
exchange has another number: no key serves two contents.

Messages on detours (detours.py), which may be lost or come twice, have seals instead: one key for each direction of a
pair, and random nonces, as XSalsa20's of 192 bits may be. What comes twice is refused by the protocol, as on any link.
"""

import hashlib
import secrets
import struct
from typing import NamedTuple, Protocol

from nacl.bindings import (
    crypto_secretbox_easy,
    crypto_secretbox_MACBYTES,
    crypto_secretbox_NONCEBYTES,
    crypto_secretbox_open_easy,
)
from nacl.exceptions import CryptoError

from gossamer.agents import Phase
from gossamer.agents.relays import Route
from gossamer.peers.protocol.pads import PairKeys, make_pair_keys
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures
from gossamer.peers.protocol.wire import PHASES, PLANS, RefusedError, digest_run

_MOMENT = struct.Struct("<QQQBB")
_PERSON = b"gossamer boxes"  # personalisation of the hash that derives a box's key
_SEAL_PERSON = b"gossamer detours"
_SEAL = struct.Struct("<III")  # sender, receiver, and what is sealed
SEAL_OVERHEAD = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES  # bytes
_NONCE = bytes(crypto_secretbox_NONCEBYTES)  # every key serves one box


class Moment(NamedTuple):
    """The exchange that a box belongs to."""

    number: int  # of the relayed exchanges of a session, from 0
    step: int
    exchange: int  # of its step, from 0
    plan: str
    phase: Phase

    def pack(self) -> bytes:
        return _MOMENT.pack(self.number, self.step, self.exchange, PLANS.index(self.plan), PHASES.index(self.phase))


class BrokenBoxError(Exception):
    """A box that its sender has not sealed for this place."""


class Boxes(Protocol):
    """Close and open the boxes of one agent."""

    @property
    def overhead(self) -> int:
        """Bytes that a box has beside its content."""
        ...

    def close(self, path: Route, moment: Moment, content: bytes) -> bytes: ...

    def open(self, path: Route, moment: Moment, box: bytes) -> bytes: ...


class OpenBoxes:
    """Boxes that anyone can read, for a network that is trusted, and for planning messages."""

    def __init__(self, overhead: int = 0) -> None:
        self.overhead = overhead

    def close(self, path: Route, moment: Moment, content: bytes) -> bytes:
        return bytes(self.overhead) + content

    def open(self, path: Route, moment: Moment, box: bytes) -> bytes:
        return box[self.overhead :]


class SealedBoxes:
    """Boxes of an agent in one session."""

    overhead = crypto_secretbox_MACBYTES

    def __init__(self, keys: PairKeys, run: str, session: bytes) -> None:
        self._keys, self._context = keys, digest_run(run) + session

    def close(self, path: Route, moment: Moment, content: bytes) -> bytes:
        return crypto_secretbox_easy(content, _NONCE, self._derive(path, moment, path[-1]))

    def open(self, path: Route, moment: Moment, box: bytes) -> bytes:
        try:
            return crypto_secretbox_open_easy(box, _NONCE, self._derive(path, moment, path[0]))
        except CryptoError:
            raise BrokenBoxError from None

    def _derive(self, path: Route, moment: Moment, other: int) -> bytes:
        label = moment.pack() + struct.pack(f"<{len(path)}I", *path) + self._context
        return hashlib.blake2b(label, digest_size=32, key=self._keys[other], person=_PERSON).digest()


def make_boxes(signatures: Signatures, agent: int, run: str, session: bytes) -> Boxes:
    """The boxes of an agent in a session; open ones where agents have no keys."""
    if signatures is UNSIGNED:
        return OpenBoxes(SealedBoxes.overhead)
    return SealedBoxes(make_pair_keys(signatures, agent), run, session)


class Seals(Protocol):
    """Close and open what one agent sends another on a detour."""

    def close(self, receiver: int, what: int, content: bytes) -> bytes: ...

    def open(self, sender: int, what: int, box: bytes) -> bytes: ...


class OpenSeals:
    """On a network that is trusted."""

    def close(self, receiver: int, what: int, content: bytes) -> bytes:
        return content

    def open(self, sender: int, what: int, box: bytes) -> bytes:
        return box


class PairSeals:
    """By keys that two agents share (pads.py); random nonces, since messages may be lost or come twice."""

    def __init__(self, keys: PairKeys, run: str) -> None:
        self._keys, self._run = keys, digest_run(run)

    def close(self, receiver: int, what: int, content: bytes) -> bytes:
        nonce = secrets.token_bytes(crypto_secretbox_NONCEBYTES)
        return nonce + crypto_secretbox_easy(content, nonce, self._derive(self._keys.agent, receiver, receiver, what))

    def open(self, sender: int, what: int, box: bytes) -> bytes:
        nonce, closed = box[:crypto_secretbox_NONCEBYTES], box[crypto_secretbox_NONCEBYTES:]
        try:
            return crypto_secretbox_open_easy(closed, nonce, self._derive(sender, self._keys.agent, sender, what))
        except (CryptoError, ValueError, TypeError):
            raise RefusedError("signature", f"a box that agent {sender} has not closed") from None

    def _derive(self, sender: int, receiver: int, other: int, what: int) -> bytes:
        label = _SEAL.pack(sender, receiver, what) + self._run
        return hashlib.blake2b(label, digest_size=32, key=self._keys[other], person=_SEAL_PERSON).digest()


def make_seals(signatures: Signatures, agent: int, run: str) -> Seals:
    """The seals of an agent; open ones where agents have no keys."""
    return OpenSeals() if signatures is UNSIGNED else PairSeals(make_pair_keys(signatures, agent), run)
