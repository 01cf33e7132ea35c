"""A deployment: which agent holds what and who talks to whom; data, assignment and topology joined (Sec. III-A)."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer import topology
from gossamer.agents.host import Host, Training, make_host
from gossamer.agents.rules import make_rule
from gossamer.assignment import ASSIGNMENTS, assign, given, shared_edges
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.model import Network, make_network, make_shift
from gossamer.runtime.settings import Settings


@dataclass(frozen=True)
class Deployment:
    graph: DataGraph  # without the edges that no link carries
    assignment: NDArray[np.int64]  # a(i) [n]
    shared_edges: NDArray[np.int64]  # B [m, m]
    links: NDArray[np.bool_]  # who talks to whom [m, m]
    combination: NDArray[np.float64]  # C [m, m]
    shift: Any  # D, CSR [n, n]
    network: Network
    edges_kept: float  # share of the data edges that the links carry

    @property
    def num_agents(self) -> int:
        return len(self.combination)


def make_deployment(
    graph: DataGraph,
    settings: Settings,
    assignment: NDArray[np.int64] | None = None,
    combination: NDArray[np.float64] | None = None,
    shift: Any = None,
) -> Deployment:
    """Join the parts by the settings, or by an assignment, a C or a shift operator D that the user gives.

    A given D must not be nonzero between agents that do not talk; it is used as it is.
    """
    m = settings.agents
    if shift is not None:
        shift = sparse.csr_array(shift)
    owner = given(assignment, graph.num_vertices, m) if assignment is not None else _assigned(graph, settings)
    shared = shared_edges(graph, owner, m)
    if combination is None:
        links = _links(settings.topology, shared)
        combination = (topology.metropolis if settings.mixing == "metropolis" else topology.uniform)(links)
    else:
        combination = np.asarray(combination, dtype=np.float64)
        if combination.shape != (m, m):
            raise GossamerError(f"C must be {m} x {m}, one row for each agent, got {combination.shape}")
        if not np.isfinite(combination).all():
            raise GossamerError("C holds NaN or infinite entries")
        links = (combination != 0) & ~np.eye(m, dtype=bool)
    _check(topology.check_assumptions(combination, links), settings)
    carried = topology.carried_edges(graph.edges, owner, links)
    kept = graph.restricted_to(carried)
    network = make_network(
        settings.layers,
        graph.num_features,
        graph.num_outputs,
        hidden=settings.hidden,
        order=settings.order,
        activation=settings.activation,
        bias=settings.bias,
        dropout=settings.dropout,
        input_dropout=settings.input_dropout,
    )
    if shift is None:
        shift = make_shift(kept.adjacency, settings.shift_kind)
    else:
        _check_shift(shift, graph.num_vertices, owner, links)
    share = float(carried.mean()) if len(carried) else 1.0
    return Deployment(kept, owner, shared_edges(kept, owner, m), links, combination, shift, network, share)


def host_of(deployment: Deployment, settings: Settings, agents: Any = None) -> Host:
    """A host of all agents, or of the given ones."""
    training = Training(
        rule=make_rule(settings.update, settings.momentum),
        step_size=settings.step_size,
        step_decay=settings.step_decay,
        weight_decay=settings.weight_decay,
        consensus_every=settings.consensus_every,
        seed=settings.seed,
    )
    return make_host(
        deployment.graph,
        deployment.shift,
        deployment.network,
        deployment.assignment,
        deployment.combination,
        range(deployment.num_agents) if agents is None else agents,
        training,
        initial_deviation=settings.initial_deviation,
        same_initial=settings.same_initial,
        dtype=settings.torch_dtype,
    )


def _assigned(graph: DataGraph, settings: Settings) -> NDArray[np.int64]:
    if settings.assignment in ASSIGNMENTS:
        return assign(graph, settings.assignment, settings.agents, settings.seed)
    path = Path(settings.assignment)
    if not path.is_file():
        raise GossamerError(
            f"expected an assignment among {', '.join(ASSIGNMENTS)}, or a CSV file with the columns "
            f"vertex,agent; got {settings.assignment!r}"
        )
    number = {name: i for i, name in enumerate(graph.names or map(str, range(graph.num_vertices)))}
    owner = np.full(graph.num_vertices, -1, dtype=np.int64)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                owner[number[row["vertex"]]] = int(row["agent"])
    except (KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise GossamerError(
            f"{path}: expected rows vertex,agent with vertices of {graph.name} and agent numbers; "
            f"this does not fit: {error}"
        ) from None
    missing = np.flatnonzero(owner < 0)
    if len(missing):
        raise GossamerError(f"{path} gives no agent to {len(missing)} vertices, the first is vertex {missing[0]}")
    return given(owner, graph.num_vertices, settings.agents)


def _links(kind: str, shared: NDArray[np.int64]) -> NDArray[np.bool_]:
    m = len(shared)
    match kind:
        case "complete":
            return topology.complete(m)
        case "ring":
            return topology.ring(m)
        case "line":
            return topology.line(m)
    return topology.needed(shared)


def _check(found: topology.Assumptions, settings: Settings) -> None:
    """Refuse a C that breaks Assumption A; without consensus only (A1) matters."""
    if not found.a1:
        raise GossamerError(
            f"C must be symmetric and doubly stochastic (A1): it differs from its transpose by "
            f"{found.asymmetry:.2g} and its row sums from 1 by {found.row_error:.2g}"
        )
    if not found.a2 and settings.consensus_every:
        if found.components > 1:
            raise GossamerError(
                f"the agents fall into {found.components} groups that share no data edge and so never agree (A2); "
                "choose --topology ring or complete, fewer agents, or --consensus-every 0"
            )
        raise GossamerError(
            f"C does not contract (A2): the spectral radius of C - 11^T/m is "
            f"{found.spectral_radius:.4f}, expected below 1"
        )


def _check_shift(shift: Any, n: int, owner: NDArray[np.int64], links: NDArray[np.bool_]) -> None:
    if shift.shape != (n, n):
        raise GossamerError(f"the shift operator must be {n} x {n}, got {shift.shape}")
    entries = shift.tocoo()
    k, z = owner[entries.row], owner[entries.col]
    missing = (k != z) & ~links[k, z]
    if missing.any():
        first = np.flatnonzero(missing)[0]
        raise GossamerError(
            f"the shift operator joins vertices {entries.row[first]} and {entries.col[first]} of "
            f"agents {k[first]} and {z[first]}, which do not talk ({missing.sum()} such entries)"
        )
