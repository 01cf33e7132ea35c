"""A host: a set of agents with their share of the data, the plans and C, and their weights, stacked.

Simulation is one host with all agents; a peer is a host with one. The arithmetic in `step` is the same for all.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.agents.choco import Choco
from gossamer.agents.coded import Coding
from gossamer.agents.codes import Rounding
from gossamer.agents.compression import PLAIN, Compression
from gossamer.agents.consensus import Consensus, make_mixing
from gossamer.agents.ends import make_ends
from gossamer.agents.keyed import column_entropy, initial_normal, row_entropy
from gossamer.agents.layout import Layout, make_layout
from gossamer.agents.plan import LayerPlan, Plan, make_plan
from gossamer.agents.power import Power
from gossamer.agents.rules import State, UpdateRule
from gossamer.agents.share import Share, make_share, make_whole
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.model import Layer, Network, Params
from gossamer.model.product import DenseProduct, SparseProduct, plan_dense, plan_sparse

WEIGHTS = "weights."  # names of a host's state: what consensus remembers of the weights
TRACKER, GRADIENT = "tracker.", "gradient."  # s_k and g_k
MIXED_TRACKER = "mixed-tracker."  # what consensus remembers of s_k
CHUNK = 1 << 21  # numbers of a layer's widest array that go through at once, if there is a batch axis: near a cache


@dataclass(frozen=True)
class Training:
    """How to train: everything of Algorithm 1 that is a choice and not data."""

    rule: UpdateRule
    step_size: float  # the centralised one
    step_decay: float = 0.0  # eta^t = eta / (1 + step_decay t): 0 is (C1), above it (C2)
    weight_decay: float = 0.0
    consensus_every: int = 1  # 0: never
    mix_first: bool = False  # consensus before the update instead of after it (Sec. V-D)
    batch: int = 0  # time steps in a mini-batch; 0: all
    seed: int = 0
    track: bool = False  # update by estimates of the whole gradient instead of each agent's own
    compression: Compression = PLAIN
    boundary_bits: int = 0  # of the rows between agents while training; 0: as they are


@dataclass(frozen=True)
class Pass:
    """One plan with the hosted data laid out for it: what a forward pass reads."""

    plan: Plan
    vertices: NDArray[np.int64]  # of the output rows, by global number
    products: tuple[DenseProduct | SparseProduct, ...]
    features: Tensor  # the first layer's input rows, or a sparse input's entries
    entropy: tuple[Tensor, ...]  # for each layer, the words that dropout hashes
    targets: Tensor
    masks: dict[str, Tensor]  # bool: the output rows (and time steps) for train, validation and test
    share: float = 1.0  # of the training examples' time steps, for a mini-batch

    @property
    def has_times(self) -> bool:
        """Whether there is a batch axis."""
        return self.masks["train"].ndim == 2


@dataclass(frozen=True)
class Host:
    agents: tuple[int, ...]
    num_agents: int
    num_labelled: int  # |T_D|, of all agents
    network: Network
    training: Training
    train_pass: Pass
    full_pass: Pass
    num_times: int | None  # time steps with a training example, all those of train_pass, if there is a batch axis
    chunk: int  # time steps that go through the network at once
    mixing: Consensus
    params: Params
    state: State
    step: int = 0

    def with_params(self, params: Params) -> "Host":
        return replace(self, params=params)


def make_host(
    graph: DataGraph,
    shift: Any,
    network: Network,
    assignment: NDArray[np.int64],
    combination: NDArray[np.float64],
    agents: Sequence[int],
    training: Training,
    *,
    initial_deviation: float = 1e-3,
    same_initial: bool = False,
    dtype: torch.dtype = torch.float32,
    receptive_field: bool = True,
    hosting: NDArray[np.int64] | None = None,
) -> Host:
    """The host of the given agents. Without `receptive_field`, training computes every vertex, as a reference."""
    filters = [layer.filter for layer in network.layers]
    share = make_share(make_whole(graph, shift, filters, assignment, combination, receptive_field), agents, hosting)
    params = initial_params(network, agents, training.seed, initial_deviation, same_initial, dtype)
    return host_of_share(share, network, training, params)


def host_of_share(share: Share, network: Network, training: Training, params: Params) -> Host:
    """The host of a share's agents, with these weights to start from."""
    dtype = next(iter(params.values())).dtype
    layout = make_layout(share.entries, share.owner, share.agents, dtype, share.hosting)
    full = _make_pass(share, layout, network, dtype, share.full_fields, None)
    coding = None
    if training.boundary_bits:
        coding = Coding(Rounding(training.boundary_bits), share.agents, share.num_agents, share.hosting)
        layout = make_layout(share.entries, share.owner, share.agents, dtype, share.hosting, apart=True)
    mixing = make_consensus(share, training, dtype, network.shapes().values())
    return Host(
        agents=share.agents,
        num_agents=share.num_agents,
        num_labelled=share.num_labelled,
        network=network,
        training=training,
        train_pass=_make_pass(share, layout, network, dtype, share.train_fields, share.train_times, full, coding),
        full_pass=full,
        num_times=_num_times(share, training.batch),
        chunk=_chunk(share.num_vertices, network),
        mixing=mixing,
        params=params,
        state=training.rule.init(params) | _consensus_state(mixing, params, training.track),
    )


def make_consensus(
    share: Share, training: Training, dtype: torch.dtype, shapes: Iterable[tuple[int, ...]]
) -> Consensus:
    """How the hosted agents mix, by the way in which they compress."""
    how = training.compression
    if how.kind == "power":
        ends = make_ends(share.combination, share.agents, dtype, share.hosting, share.slots)
        return Power(ends, how, share.num_agents, training.seed)
    largest = max(map(math.prod, shapes))
    if how.topk and dtype == torch.float32 and largest > 2**24:
        raise GossamerError(
            f"choco:topk names places in float32, which is exact up to {2**24} numbers, and an array has {largest}; "
            "take --dtype float64, or power"
        )
    mixing = make_mixing(share.combination, share.agents, dtype, share.hosting)
    return Choco(mixing, how, training.seed) if how.kind == "choco" else mixing


def _consensus_state(mixing: Consensus, params: Params, track: bool) -> State:
    state = {f"{WEIGHTS}{name}": part for name, part in mixing.init(params).items()}
    if track:
        state |= {f"{kind}{name}": torch.zeros_like(w) for kind in (TRACKER, GRADIENT) for name, w in params.items()}
        state |= {f"{MIXED_TRACKER}{name}": part for name, part in mixing.init(params).items()}
    return state


def memory(state: State, prefix: str) -> State:
    """The part of a host's state whose names have this prefix, by the rest of the name; the tensors are the same."""
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}


def initial_params(
    network: Network, agents: Sequence[int], seed: int, deviation: float, same: bool, dtype: torch.dtype
) -> Params:
    """Gaussian weights, separate for each agent or the same for all (Sec. V-A); biases start at 0."""
    params: Params = {}
    for index, layer in enumerate(network.layers):
        draws = [initial_normal(layer.weight_shape, seed, 0 if same else k, index) for k in agents]
        params[f"layer.{index}.weight"] = (torch.stack(draws) * deviation).to(dtype)
        if layer.bias:
            params[f"layer.{index}.bias"] = torch.zeros(len(agents), layer.outputs, dtype=dtype)
    return params


def _make_pass(
    share: Share,
    layout: Layout,
    network: Network,
    dtype: torch.dtype,
    fields: list[list[NDArray[np.bool_]]],
    times: NDArray[np.int64] | None,
    other: Pass | None = None,
    coding: Coding | None = None,
) -> Pass:
    """The data of a share laid out for the vertices of `fields` and, where there is a batch axis, these time steps.

    A dense input that is laid out as the `other` pass's is not copied.
    """
    filters = [layer.filter for layer in network.layers]
    plan = make_plan(layout, filters, fields, dtype, not sparse.issparse(share.features), coding)
    columns = np.arange(share.batch) if share.batch is not None and times is None else times
    row = np.cumsum(share.hosted) - 1  # of a vertex among the hosted ones

    def chosen(array: NDArray[Any]) -> Tensor:
        rows = array[row[plan.outputs]]
        return torch.from_numpy(rows if columns is None else rows[:, columns])

    targets = chosen(share.targets)
    num_slabs = len(share.agents) * len(filters[0].powers)
    features, first = _first_input(share.features, row, plan.layers[0], num_slabs, columns, dtype, other)
    length = 1 if columns is None else len(columns)
    products = (first, *(plan_dense(p.input_row, p.slab, len(p.inputs), dtype, length) for p in plan.layers[1:]))
    return Pass(
        plan=plan,
        vertices=share.vertices[plan.outputs],
        products=products,
        features=features,
        entropy=tuple(
            _entropy(layer, share.vertices[p.inputs], p.input_row, product, columns)
            for layer, p, product in zip(network.layers, plan.layers, products, strict=True)
        ),
        targets=targets if share.num_classes is not None else targets.to(dtype),
        masks={name: chosen(mask) for name, mask in share.masks.items()},
    )


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
    """How many time steps to take at once, the same on every host: the widest array stays near CHUNK numbers."""
    widest = max(max(layer.inputs, layer.outputs) * len(layer.filter.powers) for layer in network.layers)
    return max(1, CHUNK // (num_vertices * widest))


def _first_input(
    features: Any,
    row: NDArray[np.int64],
    plan: LayerPlan,
    num_slabs: int,
    columns: NDArray[np.int64] | None,
    dtype: torch.dtype,
    other: Pass | None,
) -> tuple[Tensor, DenseProduct | SparseProduct]:
    if sparse.issparse(features):
        product = plan_sparse(features[row[plan.inputs]], plan.input_row, plan.slab, num_slabs, dtype)
        return product.values, product
    if other is not None and columns is None and np.array_equal(plan.inputs, other.plan.layers[0].inputs):
        dense = other.features
    else:
        rows = features[row[plan.inputs]]
        dense = torch.from_numpy(np.ascontiguousarray(rows if columns is None else rows[:, columns])).to(dtype)
    times = 1 if columns is None else len(columns)
    return dense, plan_dense(plan.input_row, plan.slab, len(plan.inputs), dtype, times)


def _entropy(
    layer: Layer,
    vertices: NDArray[np.int64],
    input_row: NDArray[np.int64],
    product: DenseProduct | SparseProduct,
    columns: NDArray[np.int64] | None,
) -> Tensor:
    """What dropout hashes: a word for each entry of a sparse input; for a dense one a word for each row (and time
    step), to which the columns' words are added as it goes. Vertices go by their global numbers."""
    if layer.dropout == 0.0:
        return torch.empty(0, dtype=torch.int32)
    words = row_entropy(torch.from_numpy(vertices))
    if isinstance(product, SparseProduct):
        rows = torch.from_numpy(input_row[product.entry_row])
        return words[rows] + column_entropy(torch.from_numpy(product.entry_feature))
    if columns is None:
        return words[:, None]
    return words[:, None, None] + row_entropy(column_entropy(torch.from_numpy(columns)))[None, :, None]
