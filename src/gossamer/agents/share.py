"""Shares: the part of the data, of D and of C that the agents of a host know.

A simulation's host knows everything; a peer's shard is the share of one agent. Vertices keep the order of their global
numbers, so that both endpoints of a link plan the same rows from their own shares.
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
from gossamer.array_types import Floats, Ints
from gossamer.data import DataGraph
from gossamer.model.gather import Gather, VertexMask

MASKS = ("train", "validation", "test")


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
    entries: ShiftEntries  # i, j, D_ij with i or j hosted, by i
    train_fields: list[list[VertexMask]]  # U_0, ..., U_P of each layer for training, and for evaluation
    full_fields: list[list[VertexMask]]
    features: Any
    targets: NDArray[Any]
    masks: dict[str, NDArray[np.bool_]]
    train_times: Ints | None  # the time steps with a training example somewhere, where there is a batch axis
    combination: Floats  # rows of C [hosted, m]
    hosting: Ints | None = None  # host of each agent [m], for links between hosts; None: links join agents
    slots: int | None = None  # the most neighbours of any agent in C, where hosts must agree on it

    @property
    def hosted(self) -> NDArray[np.bool_]:
        return np.isin(self.owner, self.agents)

    @property
    def batch(self) -> int | None:
        return int(self.features.shape[1]) if self.features.ndim == 3 else None


@dataclass(frozen=True)
class Whole:
    """The data, D and C of all agents, prepared once for cutting shares out of it."""

    graph: DataGraph
    shift: Any  # D, CSR
    assignment: Ints
    combination: Floats
    train_fields: list[list[VertexMask]]
    full_fields: list[list[VertexMask]]

    @cached_property
    def transposed(self) -> Any:
        """D^T, CSR: the receivers of each vertex."""
        return self.shift.T.tocsr()

    @cached_property
    def most_neighbours(self) -> int:
        """Of an agent in C, whose diagonal may hold zeros."""
        links = self.combination != 0
        np.fill_diagonal(links, False)
        return int(links.sum(1).max())

    @cached_property
    def by_agent(self) -> tuple[Ints, Ints]:
        """The vertices sorted by agent, and where each agent's begin."""
        counts = np.bincount(self.assignment, minlength=len(self.combination))
        return np.argsort(self.assignment, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    def vertices_of(self, agents: Sequence[int]) -> Ints:
        order, starts = self.by_agent
        return np.sort(np.concatenate([order[starts[k] : starts[k + 1]] for k in agents]))


def make_whole(
    graph: DataGraph,
    shift: Any,
    gathers: Sequence[Gather],
    assignment: Ints,
    combination: Floats,
    receptive_field: bool = True,
) -> Whole:
    """The whole with its receptive fields; without `receptive_field`, training computes every vertex."""
    shift = sparse.csr_array(shift)
    full = receptive_fields(shift, gathers, np.ones(graph.num_vertices, dtype=bool))
    train = receptive_fields(shift, gathers, graph.labelled) if receptive_field else full
    return Whole(graph, shift, assignment, combination, train, full)


def make_share(whole: Whole, agents: Sequence[int], hosting: Ints | None = None) -> Share:
    """Cut the share of `agents` out of the whole, in time linear in what they know."""
    graph, n = whole.graph, whole.graph.num_vertices
    hosted: Any = whole.vertices_of(agents)
    if len(hosted) == n:
        entries, vertices = whole.shift.tocoo(), np.arange(n)
        i, j, values = entries.row, entries.col, entries.data.astype(np.float64, copy=False)
        hosted = slice(None)  # everything as it is, without a copy
    else:
        i, j, values, vertices = select_touching(whole.shift, whole.transposed, hosted)
    return Share(
        agents=tuple(int(k) for k in agents),
        num_agents=len(whole.combination),
        num_vertices=n,
        num_labelled=int(graph.train.sum()),
        num_classes=graph.num_classes,
        vertices=vertices,
        owner=whole.assignment[vertices],
        entries=(i, j, values),
        train_fields=[[rows[vertices] for rows in sets] for sets in whole.train_fields],
        full_fields=[[rows[vertices] for rows in sets] for sets in whole.full_fields],
        features=graph.features[hosted],
        targets=graph.targets[hosted],
        masks={name: getattr(graph, name)[hosted] for name in MASKS},
        train_times=None if graph.batch is None else np.flatnonzero(graph.train.any(0)),
        combination=whole.combination[list(agents)],
        hosting=hosting,
        slots=None if hosting is None else whole.most_neighbours,
    )


def select_touching(shift: Any, transposed: Any, hosted: Ints) -> tuple[Ints, Ints, Floats, Ints]:
    """Entries (i, j, D_ij) of D with i or j among the `hosted` vertices, and the vertices that occur, ascending.

    i and j are positions among these.
    """
    to, of = shift[hosted].tocoo(), transposed[hosted].tocoo()
    elsewhere = ~_among(hosted, of.col)
    i = np.concatenate([hosted[to.row], of.col[elsewhere]])
    j = np.concatenate([to.col, hosted[of.row[elsewhere]]])
    values = np.concatenate([to.data, of.data[elsewhere]]).astype(np.float64, copy=False)
    known = np.sort(np.concatenate([hosted, to.col, of.col]))
    known = known[np.diff(known, prepend=-1) > 0]
    order = np.argsort(i, kind="stable")
    return np.searchsorted(known, i[order]), np.searchsorted(known, j[order]), values[order], known


def _among(ascending: Ints, vertices: NDArray[Any]) -> NDArray[np.bool_]:
    position = np.minimum(np.searchsorted(ascending, vertices), len(ascending) - 1)
    return np.asarray(ascending[position] == vertices) if len(ascending) else np.zeros(len(vertices), dtype=bool)
