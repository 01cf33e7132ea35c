"""A cluster: each rank of a torch.distributed job is a host that carries some of the agents (docs/scaling.md).

Ranks exchange what their agents' links need and nothing else: in every exchange one message from rank to rank, sent and
received without blocking. The inbox waits when it is first read, so that the local products run in the meantime.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents import Inbox, Link, Outbox
from gossamer.errors import GossamerError
from gossamer.model import Params

T = TypeVar("T")
Ints = NDArray[np.int64]


class Cluster:
    """This process's part in a job of several ranks: an Engine."""

    def __init__(self, hosting: Ints, dtype: torch.dtype) -> None:
        """`hosting` [m] is the rank of each agent."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.hosting, self.dtype = hosting, dtype
        self.sent_bytes: Counter[str] = Counter()  # to other ranks, by phase

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def agents_of(self, rank: int) -> list[int]:
        return np.flatnonzero(self.hosting == rank).tolist()

    def run(self, generator: Generator[Outbox, Inbox, T]) -> T:
        arriving: _Arriving | None = None
        try:
            outbox = next(generator)
            while True:
                arriving = self._exchange(outbox)
                outbox = generator.send(arriving)
                arriving.wait()  # what nobody read has to be over as well
        except StopIteration as done:
            if arriving is not None:
                arriving.wait()
            result: T = done.value
            return result

    def total(self, part: Tensor) -> Tensor:
        """Over the rank that leads, which so can tell who is missing, and always adds in the same order."""
        whole = part.detach().clone()
        if not self.leads:
            with _told("rank 0"):
                dist.send(whole, 0)
                dist.recv(whole, 0)
            return whole
        for rank in range(1, self.size):
            theirs = torch.empty_like(whole)
            with _told(f"rank {rank}"):
                dist.recv(theirs, rank)
            whole += theirs
        for rank in range(1, self.size):
            with _told(f"rank {rank}"):
                dist.send(whole, rank)
        return whole

    def gathered(self, parts: Params) -> Params:
        """One message from each rank to the one that leads."""
        if not parts:
            return {}
        mine = torch.cat([part.flatten(1) for part in parts.values()], dim=1)
        if not self.leads:
            with _told("rank 0"):
                dist.send(mine, 0)
            return {}
        rows = mine.new_empty(len(self.hosting), mine.shape[1])
        rows[self.agents_of(0)] = mine
        for rank in range(1, self.size):
            theirs = mine.new_empty(len(self.agents_of(rank)), mine.shape[1])
            with _told(f"rank {rank}"):
                dist.recv(theirs, rank)
            rows[self.agents_of(rank)] = theirs
        pieces = rows.split([part[0].numel() for part in parts.values()], dim=1)
        return {
            name: piece.reshape(len(rows), *part.shape[1:])
            for (name, part), piece in zip(parts.items(), pieces, strict=True)
        }

    def _exchange(self, outbox: Outbox) -> "_Arriving":
        """Begin one exchange: a message to each rank and from each that has a link with us."""
        buffers: dict[int, tuple[Tensor, list[Link]]] = {}
        operations, ranks = [], []
        for rank, links in self._by_rank(outbox.expected, [link.sender for link in outbox.expected]).items():
            length = sum(prod(outbox.expected[link]) for link in links)
            buffers[rank] = torch.empty(length, dtype=self.dtype), links
            operations.append(dist.P2POp(dist.irecv, buffers[rank][0], rank))
            ranks.append(rank)
        for rank, links in self._by_rank(outbox.messages, [link.receiver for link in outbox.messages]).items():
            message = torch.cat([outbox.messages[link].detach().reshape(-1) for link in links])
            self.sent_bytes[str(outbox.phase)] += message.numel() * message.element_size()
            operations.append(dist.P2POp(dist.isend, message, rank))
            ranks.append(rank)
        with _told(f"one of the ranks {sorted(set(ranks))}"):
            works = dist.batch_isend_irecv(operations) if operations else []
        return _Arriving(list(zip(ranks, works, operations, strict=True)), buffers, outbox.expected)

    def _by_rank(self, links: Iterable[Link], far_ends: list[int]) -> dict[int, list[Link]]:
        """Links by the rank of their far end, in the same order at both ends."""
        found: dict[int, list[Link]] = {}
        for rank, link in sorted(zip(self.hosting[far_ends].tolist(), links, strict=True)):
            found.setdefault(rank, []).append(link)
        return found


class _Arriving(Mapping[Link, Tensor]):
    """An inbox that waits for its messages when it is first read."""

    def __init__(
        self,
        works: list[tuple[int, Any, Any]],
        buffers: dict[int, tuple[Tensor, list[Link]]],
        shapes: Mapping[Link, tuple[int, ...]],
    ) -> None:
        self._works, self._buffers, self._shapes = works, buffers, shapes
        self._parts: dict[Link, Tensor] = {}

    def wait(self) -> None:
        while self._works:
            rank, work, _ = self._works.pop()
            with _told(f"rank {rank}"):
                work.wait()
        for buffer, links in self._buffers.values():
            pieces = buffer.split([prod(self._shapes[link]) for link in links])
            self._parts |= {link: piece.view(self._shapes[link]) for link, piece in zip(links, pieces, strict=True)}
        self._buffers = {}

    def __getitem__(self, link: Link) -> Tensor:
        self.wait()
        return self._parts[link]

    def __iter__(self) -> Iterator[Link]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class LostRank(GossamerError):  # noqa: N818
    """Another rank does not answer any more."""


@contextmanager
def _told(who: str) -> Iterator[None]:
    """A broken connection as an error that names the rank."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).splitlines()[0][:200]
        raise LostRank(
            f"rank {dist.get_rank()} has lost {who} ({said}); see what that rank said last. Started again, the job "
            "goes on from its last checkpoint"
        ) from None
