"""Consensus by low-rank differences: each link approximates X_k - X_z by a power iteration (docs/communication.md).

For a link of agents k < z with weight matrices X_k, X_z [d, h] and Delta = X_k - X_z, a round is

    P = Delta Q = X_k Q - X_z Q               both send their d x r numbers
    P^ = an orthonormal basis of P
    Q = Delta^T P^ = X_k^T P^ - X_z^T P^      both send their h x r numbers
    X_k <- X_k - C_kz P^ Q^T,   X_z <- X_z + C_kz P^ Q^T

and Q is where the next round begins; a column that vanishes shows no way and is drawn anew. P^ Q^T = P^ P^^T Delta is a
projection of Delta: it is never larger, both ends compute the same and apply it with opposite signs, so that the mean
of the weights is kept. Where P^ spans all of Delta the round is w_k = sum_z C_kz psi_z. Arrays that are cheaper to send
whole are.

With 8 bits, a factor goes as its difference from what the other end has been told of it before: the error of one round
stands in the difference of the next. A column of Q that is not larger than its error is neither applied nor followed:
from the same start the next round knows it a hundred times better. Else the errors of ever new directions, which are
those of X_k and not of Delta, would keep the agents apart.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.agents.consensus.compression import Compression, matrix
from gossamer.agents.consensus.neighbour_slots import Ends
from gossamer.agents.counter_rng import initial_normal
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.quantisation import Rounding
from gossamer.agents.rules import State
from gossamer.model import Params


class Told(NamedTuple):
    """What both ends of each link know of an array [hosted, slots, rows, width]."""

    across: Tensor  # the difference of their values
    own: Tensor  # an end's own values as the other end knows them
    other: Tensor  # and the other's
    error: Tensor | None  # of the difference's rows, where they were rounded


@dataclass(frozen=True)
class Power:
    ends: Ends
    compression: Compression
    num_agents: int
    seed: int

    rounds = 2  # exchanges of one mixing; where no array goes as factors there is no second one

    def init(self, like: Params) -> State:
        """Where each link's iteration begins: random, the same at both ends. And what has been told, nothing."""
        state: State = {}
        for index, (name, part) in enumerate(like.items()):
            d, h = matrix(part.shape[1:])
            rank = self.compression.factors(part.shape[1:])
            if rank:
                start = part.new_zeros(*self.ends.weight.shape, rank, h)
                for position, slot, k, z in self.ends.pairs:
                    link = min(k, z) * self.num_agents + max(k, z) + 2**32
                    start[position, slot] = initial_normal((rank, h), self.seed, link, index).to(part.dtype)
                state[f"start.{name}"] = start
            if self.compression.rounding:
                for side, shape in {"left": (rank, d), "right": (rank, h)}.items() if rank else [("whole", (1, d * h))]:
                    for told in ("said", "heard"):
                        state[f"{told}.{side}.{name}"] = part.new_zeros(*self.ends.weight.shape, *shape)
        return state

    def __call__(
        self, psi: Params, into: Params, memory: State, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        """One round. `into` is overwritten and returned; psi is read; `memory` is brought forward."""
        matrices = {name: part.reshape(len(part), *matrix(part.shape[1:])) for name, part in psi.items()}
        slots = self.ends.weight.shape[1]
        left: dict[str, Tensor] = {}
        whole: dict[str, Tensor] = {}
        for name, x in matrices.items():
            if f"start.{name}" in memory:
                left[name] = _times(memory[f"start.{name}"], x.mT)
            else:
                whole[name] = x.flatten(1)[:, None, None].expand(-1, slots, 1, -1)
        told = yield from self._told({"left": left, "whole": whole}, memory, index)
        bases = {name: _basis(told["left", name].across) for name in left}
        right = {name: _times(bases[name], matrices[name]) for name in left}
        if right:
            told |= yield from self._told({"right": right}, memory, index + 1)
        signed = (self.ends.weight * self.ends.sign)[..., None, None]  # 0 where a slot has no neighbour
        for number, (name, x) in enumerate(matrices.items()):
            target = into[name].view(x.shape)
            if name in left:
                q, own, other, error = told["right", name]
                start, size = memory[f"start.{name}"], _largest(q)  # the same at both ends, and so is what they do
                finfo = torch.finfo(q.dtype)
                follow = q / torch.linalg.vector_norm(q, dim=-1, keepdim=True).clamp_min_(finfo.tiny)
                if error is not None:
                    follow = torch.where(size > error, follow, start)
                    q = q.masked_fill(size <= error, 0)
                start.copy_(follow)
                vanishes = (size <= 16 * finfo.eps * (_largest(own) + _largest(other))) & (signed != 0)
                if vanishes.any():
                    anew = initial_normal(tuple(q.shape[2:]), self.seed, 2**33 + step, number).to(q.dtype)
                    start.copy_(torch.where(vanishes, anew, start))
                torch.baddbmm(x, bases[name].flatten(1, 2).mT, (signed * q).flatten(1, 2), alpha=-1, out=target)
            else:
                torch.sub(x, (signed * told["whole", name].across).sum(1).view(x.shape), out=target)
        return into

    def _told(
        self, sides: Mapping[str, Mapping[str, Tensor]], memory: State, index: int
    ) -> Generator[Outbox, Inbox, dict[tuple[str, str], Told]]:
        """For values [hosted, slots, rows, width], by side and array: what both ends of each link know of them."""
        values = {(side, name): value for side, named in sides.items() for name, value in named.items()}
        rounding = self.compression.rounding
        errors: list[Tensor | None] = [None] * len(values)
        if rounding is None:
            own = _joined(values.values())
            other = yield from self.ends.swap(own, index)
        else:
            said = [memory[f"said.{side}.{name}"] for side, name in values]
            heard = [memory[f"heard.{side}.{name}"] for side, name in values]
            codes = [rounding.encode(value - known) for value, known in zip(values.values(), said, strict=True)]
            measure = partial(_largest_change, rounding, [code.shape[2:] for code in codes])
            others = yield from self.ends.swap(_joined(codes), index, torch.uint8, measure)
            arrived = _parted(others, codes)
            for known, code in zip(said + heard, codes + arrived, strict=True):
                known += rounding.decode(code, known.shape[-1], known.dtype)
            errors = [
                rounding.step(a, known.dtype) + rounding.step(b, known.dtype)
                for a, b, known in zip(codes, arrived, said, strict=True)
            ]
            own, other = _joined(said), _joined(heard)
        parted = (_parted(one, values.values()) for one in (self._across(own, other), own, other))
        return {key: Told(*told) for key, *told in zip(values, *parted, errors, strict=True)}

    def _across(self, own: Tensor, other: Tensor) -> Tensor:
        """The smaller agent's values [hosted, slots, width] less the other's, the same numbers at both ends."""
        return self.ends.sign[..., None] * (own - other) + 0.0  # and no zero with a sign, which qr may look at


def _basis(rows: Tensor) -> Tensor:
    """Orthonormal rows that span the given ones [..., rank, d]; 0 in place of those that are only rounding, in which
    two machines may differ."""
    q, r = torch.linalg.qr(rows.mT)
    size = r.diagonal(dim1=-2, dim2=-1).abs()
    clear = size > 64 * torch.finfo(size.dtype).eps * size.amax(-1, keepdim=True)
    basis: Tensor = q * clear[..., None, :]
    return basis.mT


def _joined(values: Iterable[Tensor]) -> Tensor:
    """Arrays [hosted, slots, ...] beside each other [hosted, slots, width]."""
    return torch.cat([value.flatten(2) for value in values], 2)


def _parted(whole: Tensor, like: Collection[Tensor]) -> list[Tensor]:
    """What `_joined` was given."""
    pieces = whole.split_with_sizes([value.shape[2:].numel() for value in like], 2)
    return [piece.unflatten(2, value.shape[2:]) for piece, value in zip(pieces, like, strict=True)]


def _largest(rows: Tensor) -> Tensor:
    largest: Tensor = torch.linalg.vector_norm(rows, torch.inf, dim=-1, keepdim=True)
    return largest


def _largest_change(rounding: Rounding, shapes: Sequence[torch.Size], message: Tensor) -> float:
    """The magnitude of the changes that a message [slots, width] of all arrays' codes stands for."""
    pieces = message.split_with_sizes([shape.numel() for shape in shapes], 1)
    return max(rounding.largest(codes.reshape(-1, shape[-1])) for codes, shape in zip(pieces, shapes, strict=True))


def _times(factors: Tensor, x: Tensor) -> Tensor:
    """Each slot's rows [hosted, slots, rank, n] times its agent's matrix [hosted, n, width]."""
    # As rows: the same product as columns, with both factors transposed, takes many times as long.
    return (factors.flatten(1, 2) @ x).view(*factors.shape[:3], -1)
