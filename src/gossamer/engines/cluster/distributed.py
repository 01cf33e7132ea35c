"""torch.distributed behind one module: the process group of a job (gloo), point-to-point messages and collectives.

Everything else of `cluster` speaks of ranks, tensors and texts; another backend would be another module like this one.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

TIMEOUT = timedelta(minutes=10)


def join_group(attempt: str) -> tuple[Any, int, int]:
    """Join the job that torchrun has started; return its key-value store, this process's rank and the number of ranks.

    torchrun keeps its store over restarts: without a name of its own an attempt meets the addresses of the last.
    """
    store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))  # type: ignore[attr-defined]
    named = dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=named, rank=rank, world_size=size, timeout=TIMEOUT)
    return named, rank, size


def leave_group() -> None:
    dist.destroy_process_group()


def own_rank() -> int:
    return dist.get_rank()


def num_ranks() -> int:
    return dist.get_world_size()


def send(tensor: Tensor, rank: int) -> None:
    dist.send(tensor, rank)


def receive(tensor: Tensor, rank: int) -> None:
    """Wait for a message that fills the tensor."""
    dist.recv(tensor, rank)


def exchange(sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> list[Callable[[], object]]:
    """Begin to send and receive tensors, by rank, without blocking; return a wait for each, those sent first.

    The tensors must last until the waits are over.
    """
    operations = [dist.P2POp(dist.isend, tensor, rank) for rank, tensor in sent]
    operations += [dist.P2POp(dist.irecv, tensor, rank) for rank, tensor in received]
    return [work.wait for work in dist.batch_isend_irecv(operations)] if operations else []


def broadcast(tensor: Tensor) -> None:
    """The first rank's tensor, written over those of the others."""
    dist.broadcast(tensor, 0)


def gather_texts(mine: str) -> list[str]:
    """Texts of all ranks, by rank, on every rank."""
    content = torch.frombuffer(bytearray(mine.encode() + b" "), dtype=torch.uint8)
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(num_ranks())]
    dist.all_gather(lengths, torch.tensor([len(content)]))
    longest = int(max(lengths))
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(content)] = content
    texts = [torch.empty(longest, dtype=torch.uint8) for _ in lengths]
    dist.all_gather(texts, padded)
    return [bytes(text[: int(n) - 1].tolist()).decode() for text, n in zip(texts, lengths, strict=True)]


def reach_barrier(seconds: float = 10.0) -> bool:
    """Wait until all ranks have come to this point, at most so long; return whether they have.

    The first to leave a job ends all of them, so that a rank with something to report must have reported it.
    """
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=seconds))
    except RuntimeError:
        return False
    return True
