"""Measures of a run: outputs and their scores (eq. (7)), disagreement, the mean of the agents' weights (eq. (9))."""

from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.batches import split_chunks
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.gradients import forward
from gossamer.agents.host import Host
from gossamer.agents.scores import ScoreSums, score_sums
from gossamer.model import Params

# First numbers of the parts of an evaluation, and of the gradient of g^t: codecs draw other numbers than in training
EVALUATION, MEASURED = 1 << 20, 1 << 21
MAGNITUDE_LIMIT = 1e12  # of every weight: in float32 the sum of a million squares is finite


def evaluate(host: Host, binned: bool = False) -> Generator[Outbox, Inbox, tuple[Tensor, ScoreSums]]:
    """Every hosted vertex's output with its own agent's weights (eq. (7)), and the sums of its scores (scores.py)."""
    parts: list[Tensor] = []
    sums: ScoreSums = {}
    for number, on in enumerate(split_chunks(host, host.full_pass)):
        outputs, _ = yield from forward(host, on, number=EVALUATION + number)
        parts.append(outputs)
        for name, part in score_sums(on, outputs, binned).items():
            sums[name] = sums[name] + part if name in sums else part
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0], sums


def disagreement(params: Params) -> float:
    """The mean absolute distance between two agents' weights, over all pairs and parameters (Sec. V-B).

    With w_(0) <= ... <= w_(m-1) it is a sum of gaps: sum_{k<z} |w_k - w_z| = sum_r r (m - r) (w_(r) - w_(r-1)).
    """
    m = len(next(iter(params.values())))
    if m == 1:
        return 0.0
    total, count = 0.0, 0
    r = np.arange(1, m)
    for part in params.values():
        gaps = np.diff(np.sort(part.flatten(1).numpy(), axis=0), axis=0)  # NumPy sorts columns 2 to 4 times faster
        total += float((gaps.sum(1, dtype=np.float64) * r * (m - r)).sum())
        count += part[0].numel()
    return total / (count * m * (m - 1) / 2)


def mean_params(params: Params) -> Params:
    """The projection onto the consensus space: every agent gets the mean of all weights (eq. (9))."""
    return {name: part.mean(0, keepdim=True).expand_as(part).contiguous() for name, part in params.items()}
