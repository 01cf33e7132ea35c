"""Consensus codecs: how an agent compresses the changes of its weights, joined by name in one table.

The code is organised as follows:
    codec        the codec seam: compress, decompress, bytes, a stable mixing step
    identity     every number as it is (bits=32)
    quantised    every number in few bits (bits=8, bits=4)
    top_k        the largest entries (topk=SHARE)
    random_k     entries at random (randk=SHARE)

A new codec is one file here and one line in CONSENSUS_CODECS; `--compress choco:NAME=VALUE` chooses it.
"""

from gossamer.agents.consensus.codecs.codec import CodecKind, ConsensusCodec, parse_fraction
from gossamer.agents.consensus.codecs.identity import IdentityCodec
from gossamer.agents.consensus.codecs.quantised import QuantisationCodec
from gossamer.agents.consensus.codecs.random_k import RandomK
from gossamer.agents.consensus.codecs.top_k import TopK
from gossamer.agents.quantisation import Quantiser

BITS: dict[int, ConsensusCodec] = {
    32: IdentityCodec(),
    8: QuantisationCodec(Quantiser(8)),
    4: QuantisationCodec(Quantiser(4)),
}


def _parse_bits(value: str) -> ConsensusCodec:
    if int(value) not in BITS:
        raise ValueError
    return BITS[int(value)]


CONSENSUS_CODECS: dict[str, CodecKind] = {
    "bits": CodecKind(_parse_bits, "|".join(map(str, BITS))),
    "topk": CodecKind(lambda value: TopK(parse_fraction(value)), "SHARE"),
    "randk": CodecKind(lambda value: RandomK(parse_fraction(value)), "SHARE"),
}

__all__ = [
    "CONSENSUS_CODECS",
    "CodecKind",
    "ConsensusCodec",
    "IdentityCodec",
    "QuantisationCodec",
    "RandomK",
    "TopK",
    "parse_fraction",
]
