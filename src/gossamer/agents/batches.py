"""Time steps that go through the network at once: mini-batches for training, chunks to bound the memory.

Both are the same pass with fewer columns on its batch axis. The columns are a function of what every host knows, so
that all of them take the same ones.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gossamer.agents.counter_rng import draw_order
from gossamer.agents.host import Host
from gossamer.agents.passes import Pass


def draw_mini_batch(host: Host) -> Pass:
    """The pass of this training step: b of the T time steps that hold a training example, or all.

    An epoch is floor(T / b) steps without a time step drawn twice; those left over wait for the next epoch's order.
    Every time step is drawn with probability b / T, so that 1/(|T_D| b / T) times the sum of the drawn losses is an
    unbiased estimate of L, and its gradient of the gradient; if b divides T, an epoch's estimates average to L.
    """
    b, T = host.training.batch, host.num_times
    if b == 0 or T is None:
        return host.train_pass
    epoch, number = divmod(host.step, T // b)
    times = draw_order(T, host.training.seed, epoch)[number * b : (number + 1) * b].sort().values
    return select_times(host.train_pass, times, fraction=b / T)


def split_chunks(host: Host, on: Pass) -> Iterator[Pass]:
    """The pass cut along its batch axis, `host.chunk` time steps at a time; their sums add to the whole pass's."""
    if not on.has_times or on.features.shape[1] <= host.chunk:
        yield on
        return
    for times in torch.arange(on.features.shape[1]).split(host.chunk):
        yield select_times(on, times, on.fraction)


def select_times(on: Pass, times: Tensor, fraction: float) -> Pass:
    """The pass with these columns of its batch axis only."""

    def select(tensor: Tensor) -> Tensor:
        return tensor if tensor.ndim == 1 else tensor.index_select(1, times)  # no dropout, no counters

    return replace(
        on,
        features=select(on.features),
        counters=tuple(map(select, on.counters)),
        edge_counters=tuple(
            None if edges is None else replace(edges, counters=select(edges.counters)) for edges in on.edge_counters
        ),
        targets=select(on.targets),
        masks={name: select(mask) for name, mask in on.masks.items()},
        weights=None if on.weights is None else select(on.weights),
        fraction=fraction,
    )
