"""Random numbers of a proof: streams that a secret of their owner decides, uniform or normal.

Noise and samples of differential privacy must be unpredictable as a whole, not only entry by entry: they are the output
of SHAKE256 (NIST 2015, "FIPS 202: SHA-3 standard: permutation-based hash and extendable-output functions") of the
secret and a key, so that a step that is repeated after a recovery repeats its noise and spends no further budget.
Normal numbers come in pairs by Box and Muller (1958), "A note on the generation of random normal deviates". They are
rounded to float64: the proofs are those of real numbers (Mironov 2012, "On significance of the least significant bits
for differential privacy", shows what rounding may reveal).
"""

import hashlib
import math
import struct
from collections.abc import Iterable

import numpy as np
from torch import Tensor

from gossamer.agents.salts import SECRET_BYTES, Secrets
from gossamer.array_types import Floats

WORD_BYTES = 8  # of which a uniform number takes 53 bits
_CONTEXT = b"gossamer secret of an agent"


def derive_secrets(seed: int, agents: Iterable[int]) -> Secrets:
    """Secrets of a simulation, whose owner has all of them: from the seed."""
    return Secrets({k: hashlib.sha256(_CONTEXT + f" {seed} {k}".encode()).digest()[:SECRET_BYTES] for k in agents})


def digest_rows(*rows: Tensor) -> int:
    """A digest of an agent's numbers, for keys of noise that other numbers must not share."""
    digest = hashlib.blake2b(digest_size=16)
    for part in rows:
        digest.update(part.contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little")


def number_key(number: float) -> int:
    """A real number as a part of a key: noise of another size is other noise."""
    return int.from_bytes(struct.pack("<d", number), "little")


def stream_uniform(secret: bytes, purpose: str, key: Iterable[int], count: int) -> Floats:
    """Numbers in [0, 1) [count]."""
    about = " ".join([purpose, *map(str, key)]).encode()
    words = np.frombuffer(hashlib.shake_256(secret + about).digest(WORD_BYTES * count), "<u8")
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def stream_normal(secret: bytes, purpose: str, key: Iterable[int], count: int) -> Floats:
    """Standard normal numbers [count]."""
    half = -(-count // 2)
    uniform = stream_uniform(secret, purpose, key, 2 * half)
    radius = np.sqrt(-2.0 * np.log1p(-uniform[:half]))
    angle = 2.0 * math.pi * uniform[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
