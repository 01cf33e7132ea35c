"""Pads of masked consensus (agents/consensus/masked.py): two agents draw the same ones, and nobody else can.

The key of a pair is their X25519 secret (Bernstein 2006, "Curve25519: new Diffie-Hellman speed records"), from the
Ed25519 keys by which agents sign: every agent has the verify keys of all from its own shard or site file, and nothing
that a neighbour sends takes part. A pad is the XSalsa20 keystream of a key that BLAKE2b derives from the pair's, the
run, the session, the step, the exchange and the receiver.

A session is an epoch as its signed statements open it (statements.py). They hold this agent's incarnation, a random
number drawn when its process starts, and the epoch, which grows within a process. So an agent enters no session twice,
not even if its disk is lost or old statements are replayed, and in a session every step comes once: no pad serves two
values. Uses are counted all the same, and a second one is refused.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from nacl.bindings import crypto_secretbox_easy, crypto_secretbox_MACBYTES, crypto_secretbox_NONCEBYTES
from nacl.exceptions import CryptoError
from nacl.public import Box
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.peers.protocol.signatures import Keyring, Signatures
from gossamer.peers.protocol.wire import digest_run

PAD_LABEL = struct.Struct("<QII")  # step, exchange, receiver
Senders = Mapping[int, Sequence[int]]  # of each receiver, all agents that send to it
_PERSON = b"gossamer pads"  # personalisation of the hash that derives a pad's key
_NONCE = bytes(crypto_secretbox_NONCEBYTES)  # every key serves one stream


class PairKeys:
    """Keys that an agent shares with each other agent, derived when they are first needed."""

    def __init__(self, keyring: Keyring, agent: int) -> None:
        self.agent = agent
        self._secret, self._verify = keyring.signing.to_curve25519_private_key(), keyring.verify
        self._keys: dict[int, bytes] = {}

    def __getitem__(self, other: int) -> bytes:
        if other not in self._keys:
            try:
                self._keys[other] = Box(self._secret, self._verify[other].to_curve25519_public_key()).shared_key()
            except (CryptoError, RuntimeError):
                raise GossamerError(
                    f"the verify key of agent {other} is none that a key can be shared with; make it a new pair"
                ) from None
        return self._keys[other]


def make_pair_keys(signatures: Signatures, agent: int) -> PairKeys:
    """The pair keys of an agent that signs."""
    if not isinstance(signatures, Keyring):
        raise GossamerError(
            f"masked consensus draws its pads from keys, and agent {agent} runs without any; leave out --insecure, or "
            "make the shards with --consensus plain"
        )
    return PairKeys(signatures, agent)


class SessionPads:
    """Pads of one agent in one session: `Pads` of masked consensus."""

    def __init__(self, keys: PairKeys, run: str, session: bytes, topologies: Sequence[Senders]) -> None:
        """`topologies` are those of steps 0, 1, ...; after the last comes the first again."""
        self._keys, self._topologies = keys, topologies
        self._context = digest_run(run) + session
        self._last_step: dict[tuple[int, int], int] = {}  # by receiver and exchange
        self.used = self.repeated = 0  # messages whose pads were drawn, and those that were refused them

    def __call__(self, sender: int, receiver: int, step: int, index: int, size: int) -> Tensor:
        """Pads are added at the agent with the smaller number, and subtracted at the other."""
        if sender != self._keys.agent:
            raise AssertionError(f"agent {self._keys.agent} has no pads of agent {sender}")
        if step <= self._last_step.get((receiver, index), -1):
            self.repeated += 1
            raise GossamerError(f"agent {sender} would use its pads of step {step} for agent {receiver} again")
        self._last_step[receiver, index] = step
        self.used += 1
        total = torch.zeros(size, dtype=torch.int64)
        for other in self._topologies[step % len(self._topologies)][receiver]:
            if other != sender:
                total.add_(self._draw(other, receiver, step, index, size), alpha=1 if sender < other else -1)
        return total

    def _draw(self, other: int, receiver: int, step: int, index: int, size: int) -> Tensor:
        """The pad that this agent and another share, int64 [size]."""
        label = PAD_LABEL.pack(step, index, receiver) + self._context
        key = hashlib.blake2b(label, digest_size=32, key=self._keys[other], person=_PERSON).digest()
        stream = crypto_secretbox_easy(bytes(8 * size), _NONCE, key)  # zeros, encrypted
        return torch.from_numpy(np.frombuffer(stream, "<i8", offset=crypto_secretbox_MACBYTES).astype(np.int64))
