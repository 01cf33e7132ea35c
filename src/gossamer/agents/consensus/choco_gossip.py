"""Consensus of public copies (CHOCO-Gossip): agents send compressed changes, and what is left out is sent later.

Every agent k has a public copy x^_k of its weights, which its neighbours can follow. A round is

    q_k = compress(psi_k - x^_k),  sent to all neighbours       x^_z <- x^_z + q_z
    w_k = psi_k + gamma sum_z C_kz (x^_z - x^_k)

An agent needs of its neighbours' copies only sum_z C_kz x^_z, which it keeps. C's columns sum to 1, so that the mean is
kept whatever is compressed; with q_k = psi_k - x^_k and gamma = 1 the round is w_k = sum_z C_kz psi_z.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.consensus.compression import Compression, matrix
from gossamer.agents.consensus.plain import Mixing
from gossamer.agents.counter_rng import key
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.quantisation import Rounding
from gossamer.agents.rules import State
from gossamer.model import Params


@dataclass(frozen=True)
class Choco:
    mixing: Mixing  # C and the links
    compression: Compression
    seed: int

    rounds = 1  # exchanges of one mixing

    def init(self, like: Params) -> State:
        return {f"{kind}.{name}": torch.zeros_like(part) for kind in ("copy", "heard") for name, part in like.items()}

    def __call__(
        self, psi: Params, into: Params, memory: State, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        """One round. `into` is overwritten and returned; psi is read; `memory` is brought forward."""
        shapes = [matrix(part.shape[1:]) for part in psi.values()]
        keys = [key(self.seed, step, index, number) for number in range(len(psi))]
        coded = [
            self._coded((part - memory[f"copy.{name}"]).view(len(part), *shape), of)
            for (name, part), shape, of in zip(psi.items(), shapes, keys, strict=True)
        ]
        rounding = self.compression.rounding
        coarse = (torch.uint8, partial(_largest, rounding, shapes)) if rounding else (None, None)
        arrived = yield from self.mixing.hear(coded, index, *coarse)
        for number, (name, part) in enumerate(psi.items()):
            copy, heard = memory[f"copy.{name}"], memory[f"heard.{name}"]
            own = self._decoded(coded[number], shapes[number], keys[number], part.dtype)
            there = [
                (columns, self._decoded(pieces[number], shapes[number], keys[number], part.dtype))
                for columns, pieces in arrived
            ]
            change = torch.empty_like(own)
            self.mixing.apply(own, there, change)
            copy += own.view_as(copy)
            heard += change.view_as(heard)
            torch.sub(heard, copy, out=into[name]).mul_(self.compression.gamma).add_(part)
        return into

    def _coded(self, change: Tensor, of: int) -> Tensor:
        """What is sent of the agents' changes [agents, d, h]: a row for each agent."""
        flat, rounding = change.flatten(1), self.compression.rounding
        if rounding:
            return rounding.encode(change).flatten(1)
        if self.compression.topk:
            # NumPy's selection takes a sixth of the time of topk.
            chosen = self.compression.chosen(flat.shape[1])
            places = torch.from_numpy(np.argpartition(flat.abs().numpy(), -chosen, axis=1)[:, -chosen:])
            return torch.cat([flat.gather(1, places), places.to(flat.dtype)], dim=1)
        if self.compression.randk:
            return flat[:, self._places(flat.shape[1], of)]
        return flat

    def _decoded(self, codes: Tensor, shape: tuple[int, int], of: int, dtype: torch.dtype) -> Tensor:
        """The change that a code stands for [agents, d * h]."""
        agents, size = len(codes), shape[0] * shape[1]
        rounding = self.compression.rounding
        if rounding:
            return rounding.decode(codes.reshape(agents, shape[0], -1), shape[1], dtype).flatten(1)
        if self.compression.topk:
            values, places = codes.chunk(2, dim=1)
            return codes.new_zeros(agents, size).scatter_(1, places.long().clamp_(0, size - 1), values)
        if self.compression.randk:
            return codes.new_zeros(agents, size).index_copy_(1, self._places(size, of), codes)
        return codes

    def _places(self, size: int, of: int) -> Tensor:
        """Random places, the same for all agents: of each array and step, others."""
        return torch.randperm(size, generator=torch.Generator().manual_seed(of >> 1))[: self.compression.chosen(size)]


def _largest(rounding: Rounding, shapes: Sequence[tuple[int, int]], message: Tensor) -> float:
    """The magnitude of the changes that a message of all arrays' codes stands for, of one agent or of several."""
    sizes = [d * rounding.length(h) for d, h in shapes]
    pieces = message.view(-1).split([size * (message.numel() // sum(sizes)) for size in sizes])
    return max(
        rounding.largest(codes.view(-1, rounding.length(h))) for codes, (_, h) in zip(pieces, shapes, strict=True)
    )
