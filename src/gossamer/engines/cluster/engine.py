"""The cluster engine: each rank of a torch.distributed job is a host that carries some agents (docs/scaling.md).

Ranks exchange what their agents' links need and nothing else: in every exchange one message from rank to rank, sent and
received without blocking. The inbox waits when it is first read, so that the local products run in the meantime.
Messages between ranks on one machine go through shared memory (shared_memory.py).
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
from gossamer.engines.cluster.shared_memory import SharedChannel
from gossamer.errors import GossamerError
from gossamer.generators import drive
from gossamer.model import Params

_T = TypeVar("_T")


class Cluster:
    """This process's part in a job of several ranks: an Engine."""

    def __init__(
        self, hosting: NDArray[np.int64], dtype: torch.dtype, channels: Mapping[int, SharedChannel] | None = None
    ) -> None:
        """`hosting` [m] is the rank of each agent; `channels` lead to the other ranks on this machine."""
        self.rank, self.size = distributed.own_rank(), distributed.num_ranks()
        self.hosting, self.dtype = hosting, dtype
        self._channels = channels or {}
        self.sent_bytes: Counter[str] = Counter()  # to other ranks, by phase

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def agents_of(self, rank: int) -> list[int]:
        return np.flatnonzero(self.hosting == rank).tolist()

    def run(self, generator: Generator[Outbox, Inbox, _T]) -> _T:
        pending = _PendingInbox([], {}, None)

        def exchange(outbox: Outbox) -> Inbox:
            nonlocal pending
            pending.wait()  # also for messages that the host did not read
            pending = self._exchange(outbox)
            return pending

        result = drive(generator, exchange)
        pending.wait()
        return result

    def total(self, part: Tensor) -> Tensor:
        """The sum over all hosts, by way of the rank that leads: it knows who is missing and adds in rank order."""
        whole = part.detach().clone()
        if not self.leads:
            with _name_lost("rank 0"):
                distributed.send(whole, 0)
                distributed.receive(whole, 0)
            return whole
        for rank in range(1, self.size):
            theirs = torch.empty_like(whole)
            with _name_lost(f"rank {rank}"):
                distributed.receive(theirs, rank)
            whole += theirs
        for rank in range(1, self.size):
            with _name_lost(f"rank {rank}"):
                distributed.send(whole, rank)
        return whole

    def gathered(self, parts: Params) -> Params:
        """All agents' arrays on the rank that leads, from one message of each rank for each type of numbers."""
        found: Params = {}
        for dtype in dict.fromkeys(part.dtype for part in parts.values()):
            found |= self._gather({name: part for name, part in parts.items() if part.dtype == dtype})
        return found

    def _gather(self, parts: Params) -> Params:
        mine = torch.cat([part.reshape(len(part), -1) for part in parts.values()], dim=1)
        if not self.leads:
            with _name_lost("rank 0"):
                distributed.send(mine, 0)
            return {}
        rows = mine.new_empty(len(self.hosting), mine.shape[1])
        rows[self.agents_of(0)] = mine
        for rank in range(1, self.size):
            theirs = mine.new_empty(len(self.agents_of(rank)), mine.shape[1])
            with _name_lost(f"rank {rank}"):
                distributed.receive(theirs, rank)
            rows[self.agents_of(rank)] = theirs
        pieces = rows.split([part[0].numel() for part in parts.values()], dim=1)
        return {
            name: piece.reshape(len(rows), *part.shape[1:])
            for (name, part), piece in zip(parts.items(), pieces, strict=True)
        }

    def _exchange(self, outbox: Outbox) -> "_PendingInbox":
        """Begin one exchange with every rank that shares a link with this one; links are between ranks."""
        waits: list[tuple[int, Callable[[], object]]] = []
        sent: list[tuple[int, Tensor]] = []
        received: list[tuple[int, Tensor]] = []
        arrived: dict[Link, Tensor] = {}
        for rank in sorted({link.sender for link in outbox.expected} | {link.receiver for link in outbox.messages}):
            message, into = outbox.messages.get(Link(self.rank, rank)), Link(rank, self.rank)
            shape = outbox.expected.get(into)
            parts = () if message is None else message if isinstance(message, tuple) else (message,)
            self.sent_bytes[str(outbox.phase)] += sum(part.numel() * part.element_size() for part in parts)
            if rank in self._channels:
                with _name_lost(f"rank {rank}"):
                    self._channels[rank].send(parts)
                waits.append((rank, partial(self._receive, rank, shape, outbox.dtype or self.dtype, arrived)))
                continue
            if message is not None:
                sent.append((rank, join_parts(message).detach().contiguous()))
            if shape is not None:
                arrived[into] = torch.empty(shape, dtype=outbox.dtype or self.dtype)
                received.append((rank, arrived[into]))
        ranks = [rank for rank, _ in (*sent, *received)]
        if ranks:
            with _name_lost(f"one of the ranks {sorted(set(ranks))}"):
                waits += zip(ranks, distributed.exchange(sent, received), strict=True)
        return _PendingInbox(waits, arrived, sent)

    def _receive(
        self, rank: int, shape: tuple[int, ...] | None, dtype: torch.dtype, arrived: dict[Link, Tensor]
    ) -> None:
        message = self._channels[rank].receive(prod(shape or (0,)), dtype)
        if shape is not None:
            arrived[Link(rank, self.rank)] = message.view(shape)


class _PendingInbox(Mapping[Link, Tensor]):
    """An inbox that waits for its messages when it is first read."""

    def __init__(
        self, waits: list[tuple[int, Callable[[], object]]], arrived: Mapping[Link, Tensor], sent: object
    ) -> None:
        self._waits, self._arrived = waits, arrived
        self._sent = sent  # which must last until the waits are over

    def wait(self) -> None:
        while self._waits:
            rank, wait = self._waits.pop()
            with _name_lost(f"rank {rank}"):
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
    """Another rank no longer answers."""


@contextmanager
def _name_lost(who: str) -> Iterator[None]:
    """Turn a broken connection into an error that names the rank."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise LostRank(
            f"rank {distributed.own_rank()} has lost {who} ({reason}); see what that rank said last. Started again, "
            "the job goes on from its last checkpoint"
        ) from None
