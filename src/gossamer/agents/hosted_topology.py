"""One topology laid out for the agents of a host: passes over the data, and consensus; room for last boundary rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.changing_rows import ChangingRows
from gossamer.agents.coded_rows import HostedCodec
from gossamer.agents.consensus import Consensus, HostedCombination
from gossamer.agents.layout import make_layout
from gossamer.agents.passes import Pass, make_pass
from gossamer.agents.salts import Secrets
from gossamer.agents.share import Share, TopologyShare
from gossamer.agents.training_options import TrainingOptions
from gossamer.array_types import Floats
from gossamer.errors import GossamerError
from gossamer.model import Network, Params
from gossamer.topology import Deliveries, mixed_at


@dataclass(frozen=True)
class HostedTopology:
    """One topology of the sequence, laid out for the agents of a host."""

    train_pass: Pass
    full_pass: Pass
    consensus: Consensus


def set_up_topology(
    share: Share,
    topology: TopologyShare,
    network: Network,
    training: TrainingOptions,
    params: Params,
    secrets: Secrets | None,
) -> HostedTopology:
    """Lay out one topology for the agents of a share."""
    dtype = next(iter(params.values())).dtype
    layout = make_layout(topology.entries, share.owner, share.agents, dtype, share.hosting)
    codec, hosted_codec, train_layout, deliveries = training.row_codec, None, layout, share.deliveries
    changing = deliveries is not None and deliveries.rows_change
    if codec is not None:
        hosted_codec = HostedCodec(codec, share.agents, share.num_agents, share.hosting, secrets)
    if codec is not None or changing:  # between any two agents, on one host too: a hosting does not change the result
        train_layout = make_layout(topology.entries, share.owner, share.agents, dtype, share.hosting, separate=True)
    full_layout, full_codec = (train_layout, hosted_codec) if codec is not None and codec.protects else (layout, None)
    full = make_pass(share, full_layout, network, dtype, topology.full_fields, None, codec=full_codec, training=False)
    at_step = None
    if deliveries is not None:
        sequence, every = deliveries.sequence, training.consensus_every

        def at_step(step: int) -> Floats:
            return sequence.combination(mixed_at(sequence, step, every))

    C = HostedCombination(topology.combination, share.agents, share.hosting, share.slots, at_step)
    return HostedTopology(
        train_pass=make_pass(
            share,
            train_layout,
            network,
            dtype,
            topology.train_fields,
            share.train_times,
            full,
            hosted_codec,
            secrets,
            changing=changing,
        ),
        full_pass=full,
        consensus=training.consensus.make(C, network.shapes(), dtype, training.seed),
    )


def init_last_rows(
    share: Share, network: Network, on: Pass, deliveries: Deliveries, dtype: torch.dtype
) -> dict[int, Tensor]:
    """Room for the last boundary rows of each exchange [hosted, rows, width], if they stand in for missing ones."""
    if deliveries.missing != "last":
        return {}
    if share.batch is not None:
        raise GossamerError(
            "--missing last keeps one row of a vertex, and this data has one for each time step; give --missing relay "
            "or drop"
        )
    return {
        rows.index: torch.zeros(len(share.agents), rows.most_rows, layer.width, dtype=dtype)
        for layer, plan in zip(network.layers, on.plan.layers, strict=True)
        for rows in (propagation.rows for propagation in plan.propagations)
        if isinstance(rows, ChangingRows)
    }
