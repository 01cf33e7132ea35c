"""What a host's agents know: their vertices, the shift operator's entries that touch them, their rows of C.

A simulation's host knows everything; a peer's shard is the share of one agent. Vertices keep the order of their global
numbers, so that both ends of a link plan the same rows from their own shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.links import Ints
from gossamer.agents.plan import receptive_fields
from gossamer.data import DataGraph
from gossamer.model.filters import Filter, Rows

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
    entries: tuple[Ints, Ints, NDArray[np.float64]]  # i, j, D_ij with i or j hosted
    train_fields: list[list[Rows]]  # U_0, ..., U_P of each layer for training, and for evaluation
    full_fields: list[list[Rows]]
    features: Any
    targets: NDArray[Any]
    masks: dict[str, NDArray[np.bool_]]
    train_times: Ints | None  # the time steps with a training example somewhere, where there is a batch axis
    combination: NDArray[np.float64]  # rows of C [hosted, m]
    hosting: Ints | None = None  # which host carries each agent [m]; None: each is on its own

    @property
    def hosted(self) -> NDArray[np.bool_]:
        return np.isin(self.owner, self.agents)

    @property
    def batch(self) -> int | None:
        return int(self.features.shape[1]) if self.features.ndim == 3 else None


def make_share(
    graph: DataGraph,
    shift: Any,
    filters: Sequence[Filter],
    assignment: Ints,
    combination: NDArray[np.float64],
    agents: Sequence[int],
    receptive_field: bool = True,
    hosting: Ints | None = None,
) -> Share:
    """Cut the share of `agents` out of the whole; without `receptive_field`, training computes every vertex."""
    everything = np.ones(graph.num_vertices, dtype=bool)
    full = receptive_fields(shift, filters, everything)
    train = receptive_fields(shift, filters, graph.labelled) if receptive_field else full
    hosted = np.isin(assignment, list(agents))
    return cut_share(
        shift,
        np.arange(graph.num_vertices),
        assignment,
        hosted,
        train,
        full,
        agents=tuple(int(k) for k in agents),
        num_agents=len(combination),
        num_vertices=graph.num_vertices,
        num_labelled=int(graph.train.sum()),
        num_classes=graph.num_classes,
        features=graph.features[hosted],
        targets=graph.targets[hosted],
        masks={name: getattr(graph, name)[hosted] for name in MASKS},
        train_times=None if graph.batch is None else np.flatnonzero(graph.train.any(0)),
        combination=combination[list(agents)],
        hosting=hosting,
    )


def cut_share(
    shift: Any,
    vertices: Ints,
    owner: Ints,
    hosted: NDArray[np.bool_],
    train_fields: list[list[Rows]],
    full_fields: list[list[Rows]],
    **others: Any,
) -> Share:
    """A share from D between these vertices, all or those around the hosted ones: what touches them, and no more."""
    whole = shift.tocoo()
    touching = hosted[whole.row] | hosted[whole.col]
    i, j = whole.row[touching], whole.col[touching]
    known = hosted.copy()
    known[i] = known[j] = True
    place = np.cumsum(known) - 1
    return Share(
        vertices=vertices[known],
        owner=owner[known],
        entries=(place[i], place[j], whole.data[touching].astype(np.float64)),
        train_fields=[[rows[known] for rows in sets] for sets in train_fields],
        full_fields=[[rows[known] for rows in sets] for sets in full_fields],
        **others,
    )
