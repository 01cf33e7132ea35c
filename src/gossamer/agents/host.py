"""A host: a set of agents with their share of the data, the plans, C, and their weights, stacked over the agents.

Simulation is one host with all agents; a peer is a host with one. The arithmetic in `step` is the same for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.agents.coded_rows import HostedCodec
from gossamer.agents.consensus import Consensus, ConsensusMethod, HostedCombination
from gossamer.agents.consensus.plain import PlainMethod
from gossamer.agents.counter_rng import draw_normal
from gossamer.agents.layout import make_layout
from gossamer.agents.passes import Pass, make_pass
from gossamer.agents.row_codecs import RowCodec
from gossamer.agents.rules import StateDict, UpdateRule
from gossamer.agents.share import Share, TopologyShare, make_share, make_whole
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.model import Network, Params

# Prefixes of the names in a host's state, which also stand in checkpoints
MIXED_WEIGHTS = "weights."  # state of the consensus of weights
TRACKER, GRADIENT = "tracker.", "gradient."  # gradient tracking: s_k and the last g_k
MIXED_TRACKER = "mixed-tracker."  # state of the consensus of s_k

NUMBERS_AT_ONCE = 1 << 21  # of a layer's widest array, if there is a batch axis: near a cache


@dataclass(frozen=True)
class TrainingOptions:
    """The choices of Algorithm 1 that are not data."""

    rule: UpdateRule
    step_size: float  # the centralised one
    step_decay: float = 0.0  # eta^t = eta / (1 + step_decay t): 0 is (C1), above it (C2)
    weight_decay: float = 0.0
    consensus_every: int = 1  # 0: never
    mix_first: bool = False  # consensus before the update instead of after it (Sec. V-D)
    batch: int = 0  # time steps in a mini-batch; 0: all
    seed: int = 0
    track: bool = False  # gradient tracking: update by estimates of the whole gradient instead of each agent's own
    consensus: ConsensusMethod = field(default_factory=PlainMethod)
    row_codec: RowCodec | None = None  # of boundary rows; None: as they are


@dataclass(frozen=True)
class HostedTopology:
    """One topology of the sequence, laid out for the agents of a host."""

    train_pass: Pass
    full_pass: Pass
    consensus: Consensus


@dataclass(frozen=True)
class Host:
    agents: tuple[int, ...]
    num_agents: int
    num_labelled: int  # |T_D|, of all agents
    network: Network
    training: TrainingOptions
    topologies: tuple[HostedTopology, ...]  # of steps 0, 1, ...; after the last comes the first again
    num_times: int | None  # time steps with a training example, all those of train_pass, if there is a batch axis
    chunk: int  # time steps that go through the network at once
    params: Params
    state: StateDict
    step: int = 0

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
    initial_deviation: float = 1e-3,
    same_initial: bool = False,
    dtype: torch.dtype = torch.float32,
    receptive_field: bool = True,
    hosting: NDArray[np.int64] | None = None,
) -> Host:
    """The host of the given agents, for a sequence of topologies (D, C). Without `receptive_field`, training computes
    every vertex, as a reference."""
    whole = make_whole(graph, topologies, network.gathers, assignment, receptive_field)
    share = make_share(whole, agents, hosting)
    params = initial_params(network, agents, training.seed, initial_deviation, same_initial, dtype)
    return host_of_share(share, network, training, params)


def host_of_share(share: Share, network: Network, training: TrainingOptions, params: Params) -> Host:
    """The host of a share's agents, with these weights to start from."""
    topologies = tuple(_lay_out(share, one, network, training, params) for one in share.topologies)
    state = _consensus_state(topologies[0].consensus, params, training.track)
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
        num_times=_num_times(share, training.batch),
        chunk=_chunk(share.num_vertices, network),
        params=params,
        state=training.rule.init(params) | state,
    )


def _lay_out(
    share: Share, one: TopologyShare, network: Network, training: TrainingOptions, params: Params
) -> HostedTopology:
    dtype = next(iter(params.values())).dtype
    layout = make_layout(one.entries, share.owner, share.agents, dtype, share.hosting)
    codec, hosted, between = training.row_codec, None, layout
    if codec is not None:  # it sees the rows of every pair of agents, also on one host
        hosted = HostedCodec(codec, share.agents, share.num_agents, share.hosting)
        between = make_layout(one.entries, share.owner, share.agents, dtype, share.hosting, separate=True)
    protected = codec is not None and codec.protects
    full = make_pass(
        share,
        between if protected else layout,
        network,
        dtype,
        one.full_fields,
        None,
        None,
        hosted if protected else None,
    )
    C = HostedCombination(one.combination, share.agents, share.hosting, share.slots)
    return HostedTopology(
        train_pass=make_pass(share, between, network, dtype, one.train_fields, share.train_times, full, hosted),
        full_pass=full,
        consensus=training.consensus.make(C, network.shapes(), dtype, training.seed),
    )


def _consensus_state(consensus: Consensus, params: Params, track: bool) -> StateDict:
    state = {f"{MIXED_WEIGHTS}{name}": part for name, part in consensus.init(params).items()}
    if track:
        state |= {f"{kind}{name}": torch.zeros_like(w) for kind in (TRACKER, GRADIENT) for name, w in params.items()}
        state |= {f"{MIXED_TRACKER}{name}": part for name, part in consensus.init(params).items()}
    return state


def select_state(state: StateDict, prefix: str) -> StateDict:
    """The part of a host's state whose names have this prefix, by the rest of the name; tensors are not copied."""
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}


def initial_params(
    network: Network, agents: Sequence[int], seed: int, deviation: float, same: bool, dtype: torch.dtype
) -> Params:
    """Gaussian weights, separate for each agent or the same for all (Sec. V-A); what is not random starts at 0."""
    params: Params = {}
    for index, layer in enumerate(network.layers):
        for number, (name, (shape, random)) in enumerate(layer.parameters().items()):
            if random:
                streams = [(0 if same else k, index, *([number] if number else [])) for k in agents]
                drawn = torch.stack([draw_normal(shape, seed, *stream) for stream in streams])
                params[f"layer.{index}.{name}"] = (drawn * deviation).to(dtype)
            else:
                params[f"layer.{index}.{name}"] = torch.zeros(len(agents), *shape, dtype=dtype)
    return params


def _num_times(share: Share, batch: int) -> int | None:
    """The number of time steps with a training example, which are those that the training pass computes."""
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


def _chunk(num_vertices: int, network: Network) -> int:
    """Time steps to take at once, the same on every host: the widest array stays near NUMBERS_AT_ONCE."""
    widest = max(max(layer.inputs, layer.width, layer.outputs) * len(layer.gather.powers) for layer in network.layers)
    return max(1, NUMBERS_AT_ONCE // (num_vertices * widest))
