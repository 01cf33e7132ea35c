"""PowerGossip: each link approximates the difference X_k - X_z by a power iteration (docs/communication.md).

Vogels, Karimireddy and Jaggi (2020), "Practical low-rank communication compression in decentralized deep learning".
For a link of agents k < z with weight matrices X_k, X_z [d, h] and Delta = X_k - X_z, a round is

    P = Delta Q = X_k Q - X_z Q               both send their d x r numbers
    P^ = an orthonormal basis of P
    Q = Delta^T P^ = X_k^T P^ - X_z^T P^      both send their h x r numbers
    X_k <- X_k - C_kz P^ Q^T,   X_z <- X_z + C_kz P^ Q^T

and the next round starts from Q; a column that vanishes points nowhere and is drawn anew. P^ Q^T = P^ P^^T Delta is a
projection of Delta: it is never larger, both endpoints compute the same and apply it with opposite signs, so that the
mean of the weights is kept. Where P^ spans all of Delta the round is w_k = sum_z C_kz psi_z. Arrays that are cheaper to
send whole are.

With 8 bits, a factor is sent as its quantised difference from what the other endpoint knows of it already, so that the
error of one round is corrected in the next (error feedback: Seide et al. 2014, "1-bit stochastic gradient descent and
its application to data-parallel distributed training of speech DNNs"). A column of Q that is not larger than its error
is neither applied nor followed: from the same start the next round knows it a hundred times better. Else the errors of
ever new directions, which are those of X_k and not of Delta, would keep the agents apart.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.agents.consensus.method import (
    Advice,
    ConsensusKind,
    HostedCombination,
    Shape,
    matrix_shape,
    parse_options,
)
from gossamer.agents.consensus.neighbour_slots import NeighbourSlots, make_slots
from gossamer.agents.counter_rng import draw_normal
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.quantisation import Quantiser
from gossamer.agents.rules import StateDict
from gossamer.model import Params

ENOUGH_FOR_ADAM = 8  # rank below which agents with adam were seen far apart


@dataclass(frozen=True)
class PowerGossipMethod:
    rank: int
    quantiser: Quantiser | None = None  # of the factors; None: as they are

    pairwise = True
    exchanges = 2  # where no array goes as factors there is no second one

    @property
    def advice(self) -> Advice:
        if self.rank >= ENOUGH_FOR_ADAM:
            return Advice()
        return Advice(
            f"adam moves agents apart in many directions at once, and power:{self.rank} brings them together in "
            f"{self.rank} of each weight matrix: they may stay far apart and lose accuracy; take --compress "
            f"choco:bits=4 or power:{ENOUGH_FOR_ADAM}, or --update momentum"
        )

    def factors(self, shape: Shape) -> int:
        """Rank in which an array goes as two factors; 0 where it is cheaper to send it whole."""
        d, h = matrix_shape(shape)
        return self.rank if self.rank * (d + h) < d * h else 0

    def payload_bytes(self, shapes: Mapping[str, Shape], itemsize: int) -> int:
        rows: list[int] = []  # numbers of each
        for shape in shapes.values():
            (d, h), rank = matrix_shape(shape), self.factors(shape)
            rows += [d] * rank + [h] * rank if rank else [d * h]
        return sum(self.quantiser.num_code_bytes(n) if self.quantiser else n * itemsize for n in rows)

    def make(self, C: HostedCombination, shapes: Mapping[str, Shape], dtype: torch.dtype, seed: int) -> "PowerGossip":
        return PowerGossip(make_slots(C, dtype), self, C.rows.shape[1], seed)


class LinkValues(NamedTuple):
    """Values of some arrays that both endpoints of each link know, side by side [hosted, slots, width]."""

    own: Tensor  # an endpoint's own values as the other one knows them
    other: Tensor  # and the other's
    errors: list[Tensor | None]  # of each array, bound on that of the difference's rows, where they were quantised


@dataclass(frozen=True)
class PowerGossip:
    slots: NeighbourSlots
    method: PowerGossipMethod
    num_agents: int
    seed: int

    exchanges = 2

    def init(self, like: Params) -> StateDict:
        """Start of each link's iteration: random, the same at both endpoints. With a quantiser, also the values that
        were sent (`said`) and received (`heard`): zeros."""
        state: StateDict = {}
        for index, (name, part) in enumerate(like.items()):
            d, h = matrix_shape(part.shape[1:])
            rank = self.method.factors(part.shape[1:])
            if rank:
                start = part.new_zeros(*self.slots.weight.shape, rank, h)
                for position, slot, k, z in self.slots.pairs:
                    link = min(k, z) * self.num_agents + max(k, z) + 2**32
                    start[position, slot] = draw_normal((rank, h), self.seed, link, index).to(part.dtype)
                state[f"start.{name}"] = start
            if self.method.quantiser:
                for side, shape in {"left": (rank, d), "right": (rank, h)}.items() if rank else [("whole", (1, d * h))]:
                    for way in ("said", "heard"):
                        state[f"{way}.{side}.{name}"] = part.new_zeros(*self.slots.weight.shape, *shape)
        return state

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        matrices = {name: part.reshape(len(part), *matrix_shape(part.shape[1:])) for name, part in psi.items()}
        slots = self.slots.weight.shape[1]
        sides: dict[tuple[str, str], Tensor] = {}
        for name, x in matrices.items():
            if f"start.{name}" in state:
                sides["left", name] = _times(state[f"start.{name}"], x.mT)
            else:
                sides["whole", name] = x.flatten(1)[:, None, None].expand(-1, slots, 1, -1)
        known = yield from self._exchange(sides, state, index)
        across = dict(zip(sides, _split(self._across(known.own, known.other), sides.values()), strict=True))
        bases = {name: _basis(rows) for (side, name), rows in across.items() if side == "left"}
        right = {("right", name): _times(basis, matrices[name]) for name, basis in bases.items()}
        for name, x in matrices.items():
            if name not in bases:
                sent_whole = (self._signed * across["whole", name]).sum(1)
                torch.sub(x, sent_whole.view(x.shape), out=into[name].view(x.shape))
        if not right:
            return into
        known = yield from self._exchange(right, state, index + 1)
        parts = (_split(one, right.values()) for one in (self._across(known.own, known.other), known.own, known.other))
        for name, q, own, other, error in zip(bases, *parts, known.errors, strict=True):
            start, size = state[f"start.{name}"], _largest(q)  # the same at both endpoints, and so is what follows
            finfo = torch.finfo(q.dtype)
            follow = q / torch.linalg.vector_norm(q, dim=-1, keepdim=True).clamp_min_(finfo.tiny)
            if error is not None:
                follow = torch.where(size > error, follow, start)
                q = q.masked_fill(size <= error, 0)
            start.copy_(follow)
            vanishes = (size <= 16 * finfo.eps * (_largest(own) + _largest(other))) & self._linked
            if vanishes.any():
                number = list(matrices).index(name)
                anew = draw_normal(tuple(q.shape[2:]), self.seed, 2**33 + step, number).to(q.dtype)
                start.copy_(torch.where(vanishes, anew, start))
            x, target = matrices[name], into[name].view(matrices[name].shape)
            torch.baddbmm(x, bases[name].flatten(1, 2).mT, (self._signed * q).flatten(1, 2), alpha=-1, out=target)
        return into

    def _exchange(
        self, values: Mapping[tuple[str, str], Tensor], state: StateDict, index: int
    ) -> Generator[Outbox, Inbox, LinkValues]:
        """Exchange values [hosted, slots, rows, width], by side and array, with the other endpoint of each link."""
        quantiser = self.method.quantiser
        if quantiser is None:
            own = _join(values.values())
            other = yield from self.slots.swap(own, index)
            return LinkValues(own, other, [None] * len(values))
        sent = [state[f"said.{side}.{name}"] for side, name in values]
        received = [state[f"heard.{side}.{name}"] for side, name in values]
        codes = [quantiser.encode(value - known) for value, known in zip(values.values(), sent, strict=True)]
        bound = partial(_bound_change, quantiser, [code.shape[2:] for code in codes])
        others = yield from self.slots.swap(_join(codes), index, torch.uint8, bound)
        arrived = _split(others, codes)
        for known, code in zip(sent + received, codes + arrived, strict=True):
            known += quantiser.decode(code, known.shape[-1], known.dtype)
        errors: list[Tensor | None] = [
            quantiser.scale(a, known.dtype) + quantiser.scale(b, known.dtype)
            for a, b, known in zip(codes, arrived, sent, strict=True)
        ]
        return LinkValues(_join(sent), _join(received), errors)

    def _across(self, own: Tensor, other: Tensor) -> Tensor:
        """The smaller agent's values [hosted, slots, width] less the other's, the same numbers at both endpoints."""
        difference = (own - other).mul_(self.slots.sign[..., None])
        return difference.add_(0.0)  # no zero with a sign, which qr may look at

    @cached_property
    def _signed(self) -> Tensor:
        """C_kz, negative at the agent with the larger number; 0 where a slot has no neighbour [hosted, slots, 1, 1]."""
        return (self.slots.weight * self.slots.sign)[..., None, None]

    @cached_property
    def _linked(self) -> Tensor:
        """Slots that have a neighbour, bool [hosted, slots, 1, 1]."""
        return self._signed != 0


def _basis(rows: Tensor) -> Tensor:
    """Orthonormal rows that span the given ones [..., rank, d]; 0 in place of those that are only rounding, in which
    two machines may differ."""
    q, r = torch.linalg.qr(rows.mT)
    size = r.diagonal(dim1=-2, dim2=-1).abs()
    clear = size > 64 * torch.finfo(size.dtype).eps * size.amax(-1, keepdim=True)
    basis: Tensor = q * clear[..., None, :]
    return basis.mT


def _join(values: Iterable[Tensor]) -> Tensor:
    """Arrays [hosted, slots, ...] beside each other [hosted, slots, width]."""
    return torch.cat([value.flatten(2) for value in values], 2)


def _split(whole: Tensor, like: Collection[Tensor]) -> list[Tensor]:
    """Undo `_join`."""
    pieces = whole.split_with_sizes([value.shape[2:].numel() for value in like], 2)
    return [piece.view(*piece.shape[:2], *value.shape[2:]) for piece, value in zip(pieces, like, strict=True)]


def _largest(rows: Tensor) -> Tensor:
    largest: Tensor = torch.linalg.vector_norm(rows, torch.inf, dim=-1, keepdim=True)
    return largest


def _bound_change(quantiser: Quantiser, shapes: Sequence[torch.Size], message: Tensor) -> float:
    """Magnitude of the changes that a message [slots, width] of all arrays' codes stands for."""
    pieces = message.split_with_sizes([shape.numel() for shape in shapes], 1)
    return max(
        quantiser.bound_magnitude(codes.reshape(-1, shape[-1])) for codes, shape in zip(pieces, shapes, strict=True)
    )


def _times(factors: Tensor, x: Tensor) -> Tensor:
    """Each slot's rows [hosted, slots, rank, n] times its agent's matrix [hosted, n, width]."""
    # As rows: the same product as columns, with both factors transposed, takes many times as long.
    return torch.bmm(factors.flatten(1, 2), x).view(*factors.shape[:3], -1)


def _parse(words: list[str]) -> PowerGossipMethod:
    """RANK or RANK,bits=8."""
    if not words:
        raise ValueError
    rank, bits = int(words[0]), int(parse_options(words[1:], {"bits"}).get("bits", 32))
    if rank < 1 or bits not in (32, 8):
        raise ValueError
    return PowerGossipMethod(rank, Quantiser(bits) if bits < 32 else None)


POWER_GOSSIP = ConsensusKind(_parse, lambda: ["power:RANK", "power:RANK,bits=8"])
