"""Shares: the part of the data, and of D and C over time, that the agents of a host know.

A simulation's host knows everything; a peer's shard is the share of one agent. Vertices keep the order of their global
numbers, so that both endpoints of a link plan the same rows from their own shares.

Links may change from step to step. A share holds a sequence of topologies, of which step t has number t mod its length;
a constant one is a sequence of one. Links that may be down in a step, or are drawn for it, are a sequence of their own
(topology/sequences.py) on one topology, that of all links.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.agents.layout import ShiftEntries
from gossamer.agents.plan import receptive_fields
from gossamer.agents.relays import AgentRoutes
from gossamer.agents.sums import TreeNode
from gossamer.array_types import Floats, Ints
from gossamer.data import DataGraph
from gossamer.data.example_weights import make_example_weights, sum_weights
from gossamer.data.standardisation import Transform
from gossamer.data.tasks import Task, find_task
from gossamer.model.gather import Gather, VertexMask
from gossamer.topology import Deliveries

MASKS = ("train", "validation", "test")


@dataclass(frozen=True)
class TopologyShare:
    """The part of one topology: D, without the data edges that are dropped, and C."""

    entries: ShiftEntries  # i, j, D_ij with i or j hosted, by i
    train_fields: list[list[VertexMask]]  # receptive fields U_0, ..., U_P of each layer (plan.py), for training
    full_fields: list[list[VertexMask]]  # and for evaluation
    combination: Floats  # rows of C [hosted, m]
    # Pairs (k, z) [n, 2] of a peer with masked consensus: its neighbours k, and all agents z that send to k
    senders: Ints | None = None


@dataclass(frozen=True)
class Share:
    """Vertices are numbered from 0 as in `vertices`; features, targets and masks are those of the hosted ones."""

    agents: tuple[int, ...]
    num_agents: int
    num_vertices: int  # of the whole graph
    num_labelled: int  # |T_D|, of all agents
    num_classes: int | None
    vertices: Ints  # hosted vertices and their neighbours in the data graph, by global number, ascending
    owner: Ints  # the agent of each
    topologies: tuple[TopologyShare, ...]  # of steps 0, 1, ...; after the last comes the first again
    features: Any
    targets: NDArray[Any]
    masks: dict[str, NDArray[np.bool_]]
    train_times: Ints | None  # time steps at which any agent has a training example; None without a time axis
    hosting: Ints | None = None  # host of each agent [m], for links between hosts; None: links join agents
    slots: int | None = None  # the most neighbours of any agent in C, where hosts must agree on it
    initial: dict[str, NDArray[Any]] | None = None  # weights of one agent that all start from; None: drawn
    transform: Transform | None = None  # by which features and targets were standardised
    routes: AgentRoutes | None = None  # of a peer's agent, where rows are relayed
    tree: TreeNode | None = None  # place of a peer's agent in the spanning tree for sums over all agents
    # In the loss (data/example_weights.py); None: all 1
    example_weights: Floats | None = None  # of the hosted vertices, shaped as the masks
    positive_weight: Floats | None = None  # of each label [C]
    deliveries: Deliveries | None = None  # of boundary rows and weights, where links change by a sequence

    @property
    def task(self) -> Task:
        return find_task(self.targets)

    @property
    def hosted(self) -> NDArray[np.bool_]:
        return np.isin(self.owner, self.agents)

    @property
    def batch(self) -> int | None:
        """Number of time steps; None without a time axis."""
        return int(self.features.shape[1]) if self.features.ndim == 3 else None


@dataclass(frozen=True)
class WholeTopology:
    """D and C of all agents, with the receptive fields of D."""

    shift: Any  # D, CSR
    combination: Floats
    train_fields: list[list[VertexMask]]
    full_fields: list[list[VertexMask]]

    @cached_property
    def transposed(self) -> Any:
        """D^T, CSR: the receivers of each vertex."""
        return self.shift.T.tocsr()


@dataclass(frozen=True)
class Whole:
    """The data and the topologies of all agents, prepared once for cutting shares out of them."""

    graph: DataGraph
    assignment: Ints
    topologies: tuple[WholeTopology, ...]
    initial: dict[str, NDArray[Any]] | None = None  # weights of one agent that all start from
    transform: Transform | None = None  # by which features and targets were standardised
    example_weights: Floats | None = None  # of all vertices
    positive_weight: Floats | None = None
    deliveries: Deliveries | None = None  # where links change by a sequence

    @property
    def num_agents(self) -> int:
        return len(self.topologies[0].combination)

    @cached_property
    def most_neighbours(self) -> int:
        """The most neighbours of an agent in any C, whose diagonal may hold zeros."""
        links = np.stack([one.combination != 0 for one in self.topologies]) & ~np.eye(self.num_agents, dtype=bool)
        return int(links.sum(2).max())

    @cached_property
    def by_agent(self) -> tuple[Ints, Ints]:
        """The vertices sorted by agent, and where each agent's begin."""
        counts = np.bincount(self.assignment, minlength=self.num_agents)
        return np.argsort(self.assignment, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    def vertices_of(self, agents: Sequence[int]) -> Ints:
        order, starts = self.by_agent
        return np.sort(np.concatenate([order[starts[k] : starts[k + 1]] for k in agents]))


def make_whole(
    graph: DataGraph,
    topologies: Sequence[tuple[Any, Floats]],
    gathers: Sequence[Gather],
    assignment: Ints,
    receptive_field: bool = True,
    balanced: bool = False,
) -> Whole:
    """Prepare a sequence of (D, C) for cutting; without `receptive_field`, training computes every vertex, and with
    `balanced` classes or labels have class weights."""
    prepared = []
    for D, combination in topologies:
        shift = sparse.csr_array(D)
        full = receptive_fields(shift, gathers, np.ones(graph.num_vertices, dtype=bool))
        train = receptive_fields(shift, gathers, graph.labelled) if receptive_field else full
        prepared.append(WholeTopology(shift, combination, train, full))
    weights = positive = None
    if balanced or graph.sample_weights is not None:
        totals = sum_weights(graph.targets, graph.train, graph.sample_weights, balanced, graph.num_classes)
        weights, positive = make_example_weights(graph.targets, graph.sample_weights, balanced, totals)
    return Whole(graph, assignment, tuple(prepared), example_weights=weights, positive_weight=positive)


def make_share(whole: Whole, agents: Sequence[int], hosting: Ints | None = None) -> Share:
    """Cut the share of `agents` out of the whole, in time linear in what they know."""
    graph, n = whole.graph, whole.graph.num_vertices
    hosted: Any = whole.vertices_of(agents)
    if len(hosted) == n:
        vertices, touching = np.arange(n), [_all_entries(one.shift) for one in whole.topologies]
        hosted = slice(None)  # everything as it is, without a copy
    else:
        selected = [select_touching(one.shift, one.transposed, hosted) for one in whole.topologies]
        vertices = selected[0][1] if len(selected) == 1 else np.unique(np.concatenate([known for _, known in selected]))
        touching = [_renumber(entries, known, vertices) for entries, known in selected]
    return Share(
        agents=tuple(int(k) for k in agents),
        num_agents=whole.num_agents,
        num_vertices=n,
        num_labelled=int(graph.train.sum()),
        num_classes=graph.num_classes,
        vertices=vertices,
        owner=whole.assignment[vertices],
        topologies=tuple(
            TopologyShare(
                entries=entries,
                train_fields=[[rows[vertices] for rows in sets] for sets in one.train_fields],
                full_fields=[[rows[vertices] for rows in sets] for sets in one.full_fields],
                combination=one.combination[list(agents)],
            )
            for one, entries in zip(whole.topologies, touching, strict=True)
        ),
        features=graph.features[hosted],
        targets=graph.targets[hosted],
        masks={name: getattr(graph, name)[hosted] for name in MASKS},
        train_times=graph.train_times,
        hosting=hosting,
        slots=None if hosting is None else whole.most_neighbours,
        initial=whole.initial,
        transform=whole.transform,
        example_weights=None if whole.example_weights is None else whole.example_weights[hosted],
        positive_weight=whole.positive_weight,
        deliveries=whole.deliveries,
    )


def _all_entries(shift: Any) -> ShiftEntries:
    entries = shift.tocoo()
    return entries.row, entries.col, entries.data.astype(np.float64, copy=False)


def _renumber(entries: ShiftEntries, known: Ints, vertices: Ints) -> ShiftEntries:
    """Entries by positions among `vertices` instead of among the `known` ones of them."""
    if len(known) == len(vertices):
        return entries
    position = np.searchsorted(vertices, known)
    return position[entries[0]], position[entries[1]], entries[2]


def select_touching(shift: Any, transposed: Any, hosted: Ints) -> tuple[ShiftEntries, Ints]:
    """Entries (i, j, D_ij) of D with i or j among the `hosted` vertices, and the vertices that occur, ascending.

    i and j are positions among these.
    """
    rows, columns = shift[hosted].tocoo(), transposed[hosted].tocoo()  # the hosted rows of D, and columns
    elsewhere = ~_is_among(hosted, columns.col)
    i = np.concatenate([hosted[rows.row], columns.col[elsewhere]])
    j = np.concatenate([rows.col, hosted[columns.row[elsewhere]]])
    values = np.concatenate([rows.data, columns.data[elsewhere]]).astype(np.float64, copy=False)
    known = np.sort(np.concatenate([hosted, rows.col, columns.col]))
    known = known[np.diff(known, prepend=-1) > 0]
    order = np.argsort(i, kind="stable")
    return (np.searchsorted(known, i[order]), np.searchsorted(known, j[order]), values[order]), known


def _is_among(ascending: Ints, vertices: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the vertices that are in an ascending list."""
    position = np.minimum(np.searchsorted(ascending, vertices), len(ascending) - 1)
    return np.asarray(ascending[position] == vertices) if len(ascending) else np.zeros(len(vertices), dtype=bool)
