"""A host: some of the agents with their share of the data, their passes and consensus, and their weights.

Weights are stacked along a first axis of agents.

Simulation is one host with all agents; a peer is a host with one. The arithmetic in `step` is the same for all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.agents.consensus import Consensus
from gossamer.agents.counter_rng import draw_normal
from gossamer.agents.hosted_topology import HostedTopology, init_last_rows, set_up_topology
from gossamer.agents.passes import Pass
from gossamer.agents.rules import StateDict
from gossamer.agents.salts import Secrets
from gossamer.agents.share import Share, make_share, make_whole
from gossamer.agents.step_links import StepLinks
from gossamer.agents.training_options import TrainingOptions
from gossamer.data import DataGraph
from gossamer.data.tasks import Task, find_task
from gossamer.errors import GossamerError
from gossamer.model import Network, Params
from gossamer.topology import Deliveries

# Prefixes of the names in a host's state, which also stand in checkpoints
WEIGHT_CONSENSUS = "weights."  # state of the consensus of weights
TRACKER, GRADIENT = "tracker.", "gradient."  # gradient tracking (step.py): s_k and the last g_k
TRACKER_CONSENSUS = "mixed-tracker."  # state of the consensus of s_k
BEST_WEIGHTS = "best-weights."  # those with the best validation score (selection.py)
LAST_ROWS = "last-rows."  # boundary rows of each exchange that arrived last (changing_rows.py)
BEST_STEP, BEST_SCORE, BEST_LOSS = "best-step", "best-score", "best-loss"  # of them, [agents]
NO_SCORE = float(np.finfo(np.float64).min)  # before the first evaluation: below every score, and finite

CHUNK_NUMBERS = 1 << 21  # numbers in a layer's widest array for one chunk of time steps: 8 MiB of float32, near a cache


@dataclass(frozen=True)
class Host:
    """The hosted agents before a step of training."""

    agents: tuple[int, ...]
    num_agents: int
    num_labelled: int  # |T_D|, of all agents
    network: Network
    training: TrainingOptions
    topologies: tuple[HostedTopology, ...]  # of steps 0, 1, ...; after the last comes the first again
    num_times: int | None  # number of time steps with a training example; None without a time axis
    chunk: int  # time steps that go through the network at once
    params: Params
    state: StateDict
    step: int = 0
    deliveries: Deliveries | None = None  # of boundary rows, where their links may be down in a step

    @property
    def topology(self) -> HostedTopology:
        """Topology of this step."""
        return self.topologies[self.step % len(self.topologies)]

    @property
    def train_pass(self) -> Pass:
        return self.topology.train_pass

    @property
    def full_pass(self) -> Pass:
        return self.topology.full_pass

    @property
    def consensus(self) -> Consensus:
        return self.topology.consensus

    @property
    def task(self) -> Task:
        return find_task(self.full_pass.targets)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of the weights."""
        return next(iter(self.params.values())).dtype

    def add_decay(self, gradient: Params, params: Params) -> None:
        """Add the gradient of lambda/2 sum_k |w_k|^2 / m at `params`, so that at consensus it is the usual one."""
        for name, g in gradient.items():
            if self.training.weight_decay and (self.training.decay_layers == "all" or name.startswith("layer.0.")):
                g.add_(params[name], alpha=self.training.weight_decay / self.num_agents)

    def with_params(self, params: Params) -> "Host":
        return replace(self, params=params)


def make_host(
    graph: DataGraph,
    topologies: Sequence[tuple[Any, NDArray[np.float64]]],
    network: Network,
    assignment: NDArray[np.int64],
    agents: Sequence[int],
    training: TrainingOptions,
    *,
    initial_deviation: float | None = 1e-3,
    same_initial: bool = False,
    dtype: torch.dtype = torch.float32,
    receptive_field: bool = True,
    hosting: NDArray[np.int64] | None = None,
    balanced: bool = False,
    secrets: Secrets | None = None,
) -> Host:
    """Make the host of the given agents, for a sequence of topologies (D, C).

    `hosting` is the host of each agent [m], for links between hosts; `balanced` gives class weights. `secrets` of
    the agents decide dropout and the noise of row codecs, else the seed does. Without `receptive_field`, training
    computes every vertex: slower, a reference for tests. The other options are those of `draw_initial_params`.
    """
    whole = make_whole(graph, topologies, network.gathers, assignment, receptive_field, balanced)
    share = make_share(whole, agents, hosting)
    params = draw_initial_params(network, agents, training.seed, initial_deviation, same_initial, dtype)
    return make_share_host(share, network, training, params, secrets)


def make_share_host(
    share: Share, network: Network, training: TrainingOptions, params: Params, secrets: Secrets | None = None
) -> Host:
    """Make the host of a share's agents, with these weights to start from."""
    deliveries = share.deliveries
    if deliveries is not None and not deliveries.rows_change:
        deliveries = None
    topologies = tuple(set_up_topology(share, one, network, training, params, secrets) for one in share.topologies)
    state = _init_consensus_state(topologies[0].consensus, params, training.track)
    if deliveries is not None:
        dtype = next(iter(params.values())).dtype
        last = init_last_rows(share, network, topologies[0].train_pass, deliveries, dtype)
        state |= {f"{LAST_ROWS}{index}": rows for index, rows in last.items()}
    if training.keep_best:
        state |= _init_selection(params)
    if len(topologies) > 1 and topologies[0].consensus.init(params):
        raise GossamerError(
            "this consensus method remembers what was sent over each link, and the links change from step to step; "
            "take --compress none"
        )
    return Host(
        agents=share.agents,
        num_agents=share.num_agents,
        num_labelled=share.num_labelled,
        network=network,
        training=training,
        topologies=topologies,
        num_times=_count_train_times(share, training.batch),
        chunk=choose_chunk(share.num_vertices, network),
        params=params,
        state=training.rule.init(params) | state,
        deliveries=deliveries,
    )


def find_step_links(host: Host) -> StepLinks | None:
    """Links of the host's step; None if all boundary rows arrive in every step."""
    if host.deliveries is None:
        return None
    ages = torch.from_numpy(host.deliveries.ages(host.step))
    last = {int(index): rows for index, rows in select_state(host.state, LAST_ROWS).items()}
    return StepLinks(ages == 0, ages >= 0, last)


def _init_consensus_state(consensus: Consensus, params: Params, track: bool) -> StateDict:
    state = {f"{WEIGHT_CONSENSUS}{name}": part for name, part in consensus.init(params).items()}
    if track:
        state |= {f"{kind}{name}": torch.zeros_like(w) for kind in (TRACKER, GRADIENT) for name, w in params.items()}
        state |= {f"{TRACKER_CONSENSUS}{name}": part for name, part in consensus.init(params).items()}
    return state


def _init_selection(params: Params) -> StateDict:
    agents = len(next(iter(params.values())))
    return {
        BEST_SCORE: torch.full((agents,), NO_SCORE, dtype=torch.float64),
        BEST_LOSS: torch.zeros(agents, dtype=torch.float64),
        BEST_STEP: torch.zeros(agents, dtype=torch.int64),
        **{f"{BEST_WEIGHTS}{name}": torch.zeros_like(part) for name, part in params.items()},
    }


def select_state(state: StateDict, prefix: str) -> StateDict:
    """The part of a host's state whose names have this prefix, by the rest of the name; tensors are not copied."""
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}


def draw_initial_params(
    network: Network, agents: Sequence[int], seed: int, deviation: float | None, same: bool, dtype: torch.dtype
) -> Params:
    """Draw Gaussian weights, separate for each agent or the same for all (Sec. V-A); others start as their layer says.

    Without a standard deviation it is sqrt(2 / (in + out)) for a matrix [in, out] (Glorot and Bengio 2010,
    "Understanding the difficulty of training deep feedforward neural networks").
    """
    params: Params = {}
    for index, layer in enumerate(network.layers):
        for number, (name, (shape, random, start)) in enumerate(layer.parameters().items()):
            part = params[f"layer.{index}.{name}"] = torch.full((len(agents), *shape), start, dtype=dtype)
            if not random:
                continue
            # The first parameter's stream has no number: it is that of layers with a single random parameter.
            stream = index, *([number] if number else [])
            scale = math.sqrt(2.0 / sum(shape[-2:])) if deviation is None else deviation
            if same:
                part.copy_(draw_normal(shape, seed, 0, *stream).mul_(scale))
            else:
                for own, k in zip(part, agents, strict=True):
                    own.copy_(draw_normal(shape, seed, k, *stream).mul_(scale))
    return params


def _count_train_times(share: Share, batch: int) -> int | None:
    """Number of time steps with a training example, those that the training pass computes. Refuse a larger batch."""
    times = share.train_times
    if batch and times is None:
        raise GossamerError(
            f"a batch of {batch} draws time steps, and this data has none: expected features [vertices, time, "
            "features]; leave --batch at 0"
        )
    if times is not None and batch > len(times):
        raise GossamerError(
            f"a batch of {batch} is more than the {len(times)} time steps with a training example; give --batch at "
            f"most {len(times)}, or 0 to take all of them"
        )
    return None if times is None else len(times)


def choose_chunk(num_vertices: int, network: Network) -> int:
    """Time steps to take at once: the whole graph's widest array stays near CHUNK_NUMBERS.

    By the whole graph, not the host's part, because all hosts must exchange the same chunks.
    """
    widest = max(max(layer.inputs, layer.width, layer.outputs) * len(layer.gather.powers) for layer in network.layers)
    return max(1, CHUNK_NUMBERS // (num_vertices * widest))
