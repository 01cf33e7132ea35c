"""A cluster: each rank of a torch.distributed job is a host that carries some of the agents (docs/scaling.md).

Ranks exchange what their agents' links need and nothing else: in every exchange one message from rank to rank, sent and
received without blocking. The inbox waits when it is first read, so that the local products run in the meantime.
Between ranks on one machine a message lies in memory that both see (nearby.py).
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents import Inbox, Link, Outbox
from gossamer.agents.exchange import join_parts
from gossamer.engines.cluster import distributed
from gossamer.engines.cluster.shared_memory import Beside
from gossamer.errors import GossamerError
from gossamer.generators import drive
from gossamer.model import Params

T = TypeVar("T")
Ints = NDArray[np.int64]


class Cluster:
    """This process's part in a job of several ranks: an Engine."""

    def __init__(self, hosting: Ints, dtype: torch.dtype, nearby: Mapping[int, Beside] | None = None) -> None:
        """`hosting` [m] is the rank of each agent; `nearby` are the ranks on this machine."""
        self.rank, self.size = distributed.own_rank(), distributed.num_ranks()
        self.hosting, self.dtype = hosting, dtype
        self._nearby = nearby or {}
        self.sent_bytes: Counter[str] = Counter()  # to other ranks, by phase

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def agents_of(self, rank: int) -> list[int]:
        return np.flatnonzero(self.hosting == rank).tolist()

    def run(self, generator: Generator[Outbox, Inbox, T]) -> T:
        arriving = _Arriving([], {}, None)

        def exchange(outbox: Outbox) -> Inbox:
            nonlocal arriving
            arriving.wait()  # what nobody read has to be over as well
            arriving = self._exchange(outbox)
            return arriving

        result = drive(generator, exchange)
        arriving.wait()
        return result

    def total(self, part: Tensor) -> Tensor:
        """Over the rank that leads, which so can tell who is missing, and always adds in the same order."""
        whole = part.detach().clone()
        if not self.leads:
            with _told("rank 0"):
                distributed.send(whole, 0)
                distributed.receive(whole, 0)
            return whole
        for rank in range(1, self.size):
            theirs = torch.empty_like(whole)
            with _told(f"rank {rank}"):
                distributed.receive(theirs, rank)
            whole += theirs
        for rank in range(1, self.size):
            with _told(f"rank {rank}"):
                distributed.send(whole, rank)
        return whole

    def gathered(self, parts: Params) -> Params:
        """One message from each rank to the one that leads."""
        if not parts:
            return {}
        mine = torch.cat([part.flatten(1) for part in parts.values()], dim=1)
        if not self.leads:
            with _told("rank 0"):
                distributed.send(mine, 0)
            return {}
        rows = mine.new_empty(len(self.hosting), mine.shape[1])
        rows[self.agents_of(0)] = mine
        for rank in range(1, self.size):
            theirs = mine.new_empty(len(self.agents_of(rank)), mine.shape[1])
            with _told(f"rank {rank}"):
                distributed.receive(theirs, rank)
            rows[self.agents_of(rank)] = theirs
        pieces = rows.split([part[0].numel() for part in parts.values()], dim=1)
        return {
            name: piece.reshape(len(rows), *part.shape[1:])
            for (name, part), piece in zip(parts.items(), pieces, strict=True)
        }

    def _exchange(self, outbox: Outbox) -> "_Arriving":
        """Begin one exchange with every rank that has a link with us; links are between ranks."""
        waits: list[tuple[int, Callable[[], object]]] = []
        sent: list[tuple[int, Tensor]] = []
        received: list[tuple[int, Tensor]] = []
        arrived: dict[Link, Tensor] = {}
        for rank in sorted({link.sender for link in outbox.expected} | {link.receiver for link in outbox.messages}):
            message, into = outbox.messages.get(Link(self.rank, rank)), Link(rank, self.rank)
            shape = outbox.expected.get(into)
            parts = () if message is None else message if isinstance(message, tuple) else (message,)
            self.sent_bytes[str(outbox.phase)] += sum(part.numel() * part.element_size() for part in parts)
            if rank in self._nearby:
                with _told(f"rank {rank}"):
                    self._nearby[rank].send(parts)
                waits.append((rank, partial(self._receive, rank, shape, outbox.dtype or self.dtype, arrived)))
                continue
            if message is not None:
                sent.append((rank, join_parts(message).detach().contiguous()))
            if shape is not None:
                arrived[into] = torch.empty(shape, dtype=outbox.dtype or self.dtype)
                received.append((rank, arrived[into]))
        ranks = [rank for rank, _ in (*sent, *received)]
        if ranks:
            with _told(f"one of the ranks {sorted(set(ranks))}"):
                waits += zip(ranks, distributed.exchange(sent, received), strict=True)
        return _Arriving(waits, arrived, sent)

    def _receive(
        self, rank: int, shape: tuple[int, ...] | None, dtype: torch.dtype, arrived: dict[Link, Tensor]
    ) -> None:
        message = self._nearby[rank].receive(prod(shape or (0,)), dtype)
        if shape is not None:
            arrived[Link(rank, self.rank)] = message.view(shape)


class _Arriving(Mapping[Link, Tensor]):
    """An inbox that waits for its messages when it is first read."""

    def __init__(
        self, waits: list[tuple[int, Callable[[], object]]], arrived: Mapping[Link, Tensor], kept: object
    ) -> None:
        self._waits, self._arrived = waits, arrived
        self._kept = kept  # what is sent must last until it is over

    def wait(self) -> None:
        while self._waits:
            rank, wait = self._waits.pop()
            with _told(f"rank {rank}"):
                wait()

    def __getitem__(self, link: Link) -> Tensor:
        self.wait()
        return self._arrived[link]

    def __iter__(self) -> Iterator[Link]:
        self.wait()
        return iter(self._arrived)

    def __len__(self) -> int:
        self.wait()
        return len(self._arrived)


class LostRank(GossamerError):  # noqa: N818
    """Another rank does not answer any more."""


@contextmanager
def _told(who: str) -> Iterator[None]:
    """A broken connection as an error that names the rank."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        said = str(error).partition("\n")[0][:200]
        raise LostRank(
            f"rank {distributed.own_rank()} has lost {who} ({said}); see what that rank said last. Started again, the "
            "job goes on from its last checkpoint"
        ) from None
