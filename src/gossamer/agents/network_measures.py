"""Measures of the whole network between agents that see only their neighbours: the mean of all weights (eq. (9)), the
disagreement, and g^t (eq. (19)), by sums over a spanning tree of the links (sums.py).

The sum of all weights goes to the root and back, so that every agent has the mean. Each agent's gradient at the mean,
by one forward and one backward pass over the links, is summed at the root, which sends back two numbers. A parent
learns the sums of a subtree. The disagreement, the mean distance of two agents' weights, is no sum: it is measured on
weights at even distances, the same of all agents, of which the root learns each agent's. With masked consensus no
single weight may be seen: the sums are padded (masked.py), and the disagreement stays unknown.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gossamer.agents.consensus.masked import LARGEST, SCALE, Pads
from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.gradients import loss_gradient
from gossamer.agents.host import Host
from gossamer.agents.measures import MEASURED, disagreement
from gossamer.agents.sums import ROOT, TreeNode, spread_from_root, sum_over_tree, sum_to_root
from gossamer.errors import DivergedError, GossamerError
from gossamer.generators import delegate
from gossamer.model import Params

SAMPLED_NUMBERS = 1 << 16  # weights of all agents by which their disagreement is measured, at most


@dataclass(frozen=True)
class NetworkMeasures:
    """Measures of all agents' weights, the same at every agent."""

    mean: Params  # [1, ...], of all agents' weights
    disagreement: float  # NaN with masked consensus
    stationarity: float  # g^t; NaN where gradients must not be seen


@dataclass(frozen=True)
class TreeSums:
    """An agent's part in sums over all agents."""

    node: TreeNode
    num_agents: int
    masked: bool = False
    pads: Pads | None = None  # of masked sums; None: to find the shapes of messages
    gradient: bool = True  # the sum of gradients may be seen

    def encode(self, vector: Tensor, moment: int, number: int) -> Tensor:
        """A vector as it is summed; masked, 2^40 / m times it in integers, with pads that cancel in the sum."""
        if not self.masked:
            return vector
        if not bool((vector.abs() <= LARGEST).all()):  # also where a number is none
            raise DivergedError(f"numbers beyond {LARGEST:.0f} in a masked sum")
        integers = (vector.double() * (SCALE / self.num_agents)).round_().long()
        if self.pads is not None:
            integers += self.pads(self.node.agent, self.num_agents, moment, number, len(integers))
        return integers

    def decode(self, total: Tensor) -> Tensor:
        """The mean of all vectors from their sum as it was encoded."""
        if not self.masked:
            return total / self.num_agents
        mean = total.double() / SCALE
        if bool((mean.abs() > LARGEST * (1 + 1e-9)).any()):
            raise DivergedError("a masked sum that no agents' numbers have (one of them lies, or has other pads)")
        return mean


def measure_network(host: Host, sums: TreeSums, moment: int) -> Generator[Outbox, Inbox, NetworkMeasures]:
    """Measures of the agents' weights on a host with one of them; `moment` grows from one call to the next, as the
    pads of masked sums need."""
    m, node, dtype = host.num_agents, sums.node, host.torch_dtype
    own = flatten_params(host.params)
    total = yield from sum_over_tree(node, sums.encode(own, moment, 0), Phase.MEASURES)
    mean = unflatten_params(sums.decode(total).to(dtype), host.params)
    index, parts = 2 * node.height, list[Tensor]()
    if sums.gradient:
        pass_exchanges = loss_gradient(host.with_params(mean), dropout=False, first=MEASURED)
        (_, gradient), index = yield from _relabel(pass_exchanges, index)
        host.add_decay(gradient, mean)
        parts.append(sums.encode(flatten_params(gradient), moment, 1))
    if not sums.masked:
        parts.append(_place_sample(own, host))
    found = [math.nan, math.nan]
    if parts:
        widths = [len(part) for part in parts]
        pieces = list((yield from sum_to_root(node, torch.cat(parts), Phase.MEASURES, index)).split(widths))
        if node.parent == ROOT:
            if sums.gradient:  # |sum_k g_k|^2 / m = m |mean_k g_k|^2
                found[0] = m * float(sums.decode(pieces[0]).double().square().sum())
            if not sums.masked:
                found[1] = disagreement({"sample": pieces[-1].view(m, -1)})
    spread = torch.tensor([0.0 if math.isnan(one) else one for one in found], dtype=torch.float64)
    # As scores, these have no bound: squares of gradients may be large.
    g, apart = (yield from spread_from_root(node, spread, Phase.SCORES, index + node.height, _check_measures)).tolist()
    return NetworkMeasures(mean, math.nan if sums.masked else apart, g if sums.gradient else math.nan)


def flatten_params(params: Params) -> Tensor:
    """The weights of a host with one agent as one vector."""
    return torch.cat([part.flatten() for part in params.values()])


def unflatten_params(vector: Tensor, like: Params) -> Params:
    """Weights as named arrays again."""
    pieces = vector.split([part.numel() for part in like.values()])
    return {name: piece.view_as(part) for (name, part), piece in zip(like.items(), pieces, strict=True)}


def _check_measures(sender: int, measures: Tensor) -> None:
    """Refuse measures that no weights have."""
    if not bool((measures >= 0).all()):
        raise GossamerError(
            f"agent {sender} has sent measures of all weights that none have, {measures.tolist()}; find out what agent "
            f"{sender} runs, and start again"
        )


def _place_sample(own: Tensor, host: Host) -> Tensor:
    """Some weights of the hosted agent in their place among all agents' [m * count], zeros elsewhere."""
    m, (agent,) = host.num_agents, host.agents
    count = min(len(own), max(1, SAMPLED_NUMBERS // m))
    placed = own.new_zeros(m, count)
    placed[agent] = own if count == len(own) else own[torch.arange(count) * _find_stride(len(own)) % len(own)]
    return placed.flatten()


def _find_stride(size: int) -> int:
    """A stride near the golden section, coprime to the size: its multiples are all different and evenly spread, in no
    step with the rows of a matrix (Weyl 1916)."""
    stride = round(size * (math.sqrt(5) - 1) / 2)
    while math.gcd(stride, size) > 1:
        stride += 1
    return stride


def _relabel(
    exchanges: Generator[Outbox, Inbox, tuple[Tensor, Params]], index: int
) -> Generator[Outbox, Inbox, tuple[tuple[Tensor, Params], int]]:
    """The same exchanges as those of a measure, numbered from `index` on; also returns the number after them."""

    def label(outbox: Outbox) -> Generator[Outbox, Inbox, Inbox]:
        nonlocal index
        index += 1
        return (yield replace(outbox, phase=Phase.MEASURES, index=index - 1))

    return (yield from delegate(exchanges, label)), index
