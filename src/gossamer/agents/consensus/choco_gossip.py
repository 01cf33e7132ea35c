"""CHOCO-Gossip: agents send compressed changes against public copies; what is left out is sent later.

Koloskova, Stich and Jaggi (2019), "Decentralized stochastic optimization and gossip algorithms with compressed
communication". Every agent k has a public copy x^_k of its weights, which its neighbours can follow. A round is

    q_k = compress(psi_k - x^_k),  sent to all neighbours       x^_z <- x^_z + q_z
    w_k = psi_k + gamma sum_z C_kz (x^_z - x^_k)

The difference psi_k - x^_k carries what earlier rounds have left out (error feedback: Seide et al. 2014, "1-bit
stochastic gradient descent and its application to data-parallel distributed training of speech DNNs"; Karimireddy et
al. 2019, "Error feedback fixes SignSGD and other gradient compression schemes").

An agent needs of its neighbours' copies only sum_z C_kz x^_z, which it keeps. C's columns sum to 1, so that the mean is
kept whatever is compressed; with q_k = psi_k - x^_k and gamma = 1 the round is w_k = sum_z C_kz psi_z.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gossamer.agents.consensus.codecs import CONSENSUS_CODECS, ConsensusCodec
from gossamer.agents.consensus.codecs.codec import MatrixShape
from gossamer.agents.consensus.method import (
    Advice,
    ConsensusKind,
    HostedCombination,
    Shape,
    matrix_shape,
    parse_options,
)
from gossamer.agents.consensus.plain import Mixing, make_mixing
from gossamer.agents.counter_rng import derive_key
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.rules import StateDict
from gossamer.model import Params


@dataclass(frozen=True)
class ChocoGossipMethod:
    codec: ConsensusCodec
    gamma: float  # mixing step
    words: str  # the codec as it was written, for advice

    pairwise = False
    exchanges = 1

    @property
    def advice(self) -> Advice:
        smaller = f"choco:{self.words},gamma={self.gamma / 4:.2g}"
        return Advice(
            drift=f"choco's mixing step is too large, give a smaller one: --compress {smaller}",
            divergence="a smaller gamma in --compress",
        )

    def payload_bytes(self, shapes: Mapping[str, Shape], itemsize: int) -> int:
        return sum(self.codec.num_code_bytes(matrix_shape(shape), itemsize) for shape in shapes.values())

    def make(self, C: HostedCombination, shapes: Mapping[str, Shape], dtype: torch.dtype, seed: int) -> "ChocoGossip":
        self.codec.check(max(map(math.prod, shapes.values())), dtype)
        return ChocoGossip(make_mixing(C, dtype), self.codec, self.gamma, seed)


@dataclass(frozen=True)
class ChocoGossip:
    mixing: Mixing  # C and the links
    codec: ConsensusCodec
    gamma: float
    seed: int

    exchanges = 1

    def init(self, like: Params) -> StateDict:
        """The own copies, and `heard`: the sums of the neighbours' copies."""
        return {f"{kind}.{name}": torch.zeros_like(part) for kind in ("copy", "heard") for name, part in like.items()}

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        shapes = [matrix_shape(part.shape[1:]) for part in psi.values()]
        keys = [derive_key(self.seed, step, index, number) for number in range(len(psi))]
        codes = [
            self.codec.compress((part - state[f"copy.{name}"]).view(len(part), *shape), key)
            for (name, part), shape, key in zip(psi.items(), shapes, keys, strict=True)
        ]
        bound = self.codec.bound_magnitude
        if bound is not None:
            bound = partial(_bound_message, bound, shapes, [part.shape[1] for part in codes])
        arrived = yield from self.mixing.exchange(codes, index, self.codec.dtype, bound)
        for number, (name, part) in enumerate(psi.items()):
            decompress = partial(self.codec.decompress, shape=shapes[number], key=keys[number], dtype=part.dtype)
            copy, neighbours = state[f"copy.{name}"], state[f"heard.{name}"]
            own = decompress(codes[number])
            change = torch.empty_like(own)
            self.mixing.apply(own, [(columns, decompress(pieces[number])) for columns, pieces in arrived], change)
            copy += own.view_as(copy)
            neighbours += change.view_as(neighbours)
            torch.sub(neighbours, copy, out=into[name]).mul_(self.gamma).add_(part)
        return into


def _bound_message(
    bound: Callable[[Tensor, MatrixShape], float],
    shapes: Sequence[MatrixShape],
    sizes: Sequence[int],
    message: Tensor,
) -> float:
    """Bound on the changes that a message of all arrays' codes stands for, of one agent or of several."""
    agents = message.numel() // sum(sizes)
    pieces = message.view(-1).split([agents * size for size in sizes])
    return max(bound(codes.view(agents, size), shape) for codes, size, shape in zip(pieces, sizes, shapes, strict=True))


def _parse(words: list[str]) -> ChocoGossipMethod:
    """One codec and, if wanted, a gamma: `bits=8`, `topk=0.1,gamma=0.2`."""
    options = parse_options(words, {*CONSENSUS_CODECS, "gamma"})
    given = options.pop("gamma", None)
    ((name, value),) = options.items()
    codec = CONSENSUS_CODECS[name].parse(value)
    gamma = codec.stable_mixing_step if given is None else float(given)
    if not 0 < gamma <= 1:
        raise ValueError
    return ChocoGossipMethod(codec, gamma, f"{name}={value}")


CHOCO_GOSSIP = ConsensusKind(_parse, lambda: [f"choco:{name}={kind.syntax}" for name, kind in CONSENSUS_CODECS.items()])
