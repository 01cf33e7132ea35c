"""Evaluations of an agent together with the others: scores of the whole network, its disagreement and g^t, and the end
of a run, at which every agent learns the mean of all weights.

Scores are sums over a spanning tree at every evaluation (agents/sums.py), unless the run is private: there an agent
knows its own. What costs as much as a consensus, the measures of agents/network_measures.py, is found at every
evaluation or at the end alone, as the settings want it.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gossamer.agents import Host, Inbox, Outbox
from gossamer.agents.consensus.masked import Pads
from gossamer.agents.exchange import Phase
from gossamer.agents.measures import evaluate
from gossamer.agents.network_measures import NetworkMeasures, TreeSums, measure_network
from gossamer.agents.scores import ScoreKind, Scores, ScoreSums, check_sums, choose_score, compute_scores
from gossamer.agents.share import MASKS, Share
from gossamer.agents.sums import sum_over_tree
from gossamer.errors import GossamerError
from gossamer.generators import delegate
from gossamer.model import Params
from gossamer.runs.evaluated_steps import find_measures
from gossamer.runs.settings import Settings

ReceivedRows = list[dict[int, Tensor]]  # of each exchange of a forward pass, by sender


@dataclass(frozen=True)
class PeerEvaluation:
    """An evaluation of one agent's vertices, and of all agents' as far as it is known."""

    step: int
    own: ScoreSums
    whole: Scores | None = None
    best_step: int | None = None  # of the best validation score so far
    disagreement: float = math.nan
    stationarity: float = math.nan


@dataclass(frozen=True)
class Closing:
    """What an agent knows at the end of a run, of the weights that are kept."""

    mean: Params | None  # [1, ...], of all agents' weights; None if it is not measured
    disagreement: float
    stationarity: float
    rows: ReceivedRows  # of neighbours, by which its vertices can be predicted again


@dataclass(frozen=True)
class NetworkEvaluation:
    """How an agent evaluates with the others."""

    score: ScoreKind
    sums: TreeSums
    shares_scores: bool
    measures: str  # "all", "end" or "none"
    scale: Tensor | None  # by which real targets were divided
    most: int  # examples of all agents, at most

    def evaluate(self, host: Host) -> Generator[Outbox, Inbox, PeerEvaluation]:
        """Evaluate the agent's weights as they are."""
        _, own = yield from evaluate(host, self.score.needs_ranking)
        whole, measures = None, None
        if self.shares_scores:
            width, sizes = host.network.layers[-1].outputs, [len(own[name]) for name in MASKS]

            def split(vector: Tensor) -> ScoreSums:
                return dict(zip(MASKS, vector.split(sizes), strict=True))

            def check(sender: int, vector: Tensor) -> None:
                check_sums(split(vector), host.task, width, self.most, sender)

            vector = torch.cat([own[name] for name in MASKS])
            total = yield from sum_over_tree(self.sums.node, vector, Phase.SCORES, check=check)
            whole = compute_scores([split(total)], host.task, width, self.scale)
        if self.measures == "all":
            measures = yield from measure_network(host, self.sums, host.step)
        return PeerEvaluation(host.step, own, whole, None, *_select(measures))

    def close(self, kept: Host, moment: int) -> Generator[Outbox, Inbox, Closing]:
        """End a run with the weights that are kept: one more forward pass, whose rows are remembered, and measures.

        `moment` is beyond all steps. Where links change, those of step 0 are used: all agents know them in advance."""
        kept = replace(kept, topologies=kept.topologies[:1])
        rows, measures = (yield from receive_rows(kept)), None
        if self.measures != "none":
            measures = yield from measure_network(kept, self.sums, moment)
        return Closing(None if measures is None else measures.mean, *_select(measures), rows)


def receive_rows(host: Host) -> Generator[Outbox, Inbox, ReceivedRows]:
    """Make a forward pass, and return the rows that the neighbours sent in it."""
    rows = ReceivedRows()

    def remember(outbox: Outbox) -> Generator[Outbox, Inbox, Inbox]:
        inbox = yield outbox
        rows.append({link.sender: inbox[link].clone() for link in outbox.expected})
        return inbox

    yield from delegate(evaluate(host), remember)
    return rows


def _select(measures: NetworkMeasures | None) -> tuple[float, float]:
    return (math.nan, math.nan) if measures is None else (measures.disagreement, measures.stationarity)


def make_evaluation(
    host: Host, settings: Settings, share: Share | None, pads: Pads | None = None, closes: bool = True
) -> NetworkEvaluation:
    """The evaluation of a host with one agent. Masked sums need `pads` to be sent; a stage before the last, which does
    not close the run, is not measured."""
    if share is None or share.tree is None:
        raise GossamerError("agents that evaluate together need a spanning tree: cut the shards again")
    public = settings.privacy_spec is None
    return NetworkEvaluation(
        choose_score(settings.score, host.task),
        TreeSums(share.tree, host.num_agents, settings.masks, pads, gradient=public),
        public,
        find_measures(settings) if closes else "none",
        None if share.transform is None else share.transform.find_target_scale(),
        share.num_vertices * (share.batch or 1),
    )
