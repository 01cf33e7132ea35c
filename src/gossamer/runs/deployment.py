"""A deployment: data, assignment and topology joined (Sec. III-A)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer import topology
from gossamer.agents.consensus.masked import check_senders
from gossamer.agents.scores import choose_score
from gossamer.assignment import ASSIGNMENTS, assign, check_assignment, shared_edges
from gossamer.data import DataGraph
from gossamer.data.rows import parse_whole_number, read_named_rows
from gossamer.data.standardisation import Transform, measure_transform
from gossamer.errors import GossamerError, naming, shown
from gossamer.model import Network, make_shift
from gossamer.model.state_dicts import to_state_dict
from gossamer.runs.capacity import check_agents
from gossamer.runs.connecting import certify_given, connect, require_assumptions
from gossamer.runs.initial_weights import GivenWeights, InitialWeights, take_initial
from gossamer.runs.settings import Settings
from gossamer.runs.stages import GRAPH, build_network, find_input_width, uses_masks
from gossamer.topology import Progress as Progress


@dataclass(frozen=True)
class DeployedTopology:
    """C on its links, and the part of the data graph that these carry."""

    certificate: topology.Certificate  # C and its properties
    graph: DataGraph  # without the edges that are dropped
    shift: Any  # D, CSR [n, n]
    shared_edges: NDArray[np.int64]  # B [m, m]
    edges_kept: float  # fraction of the data edges, over links or relayed
    edges_relayed: float = 0.0  # fraction that goes over agents between
    routes: topology.Routes = field(default_factory=topology.Routes)  # of agents that share such edges


@dataclass(frozen=True)
class Deployment:
    """Data, assignment and network with the topologies of steps 0, 1, ...; after the last comes the first again.

    Whoever asks for a deployment's links, C or D gets those of the first topology, which most runs have alone.
    """

    assignment: NDArray[np.int64]  # a(i) [n]
    network: Network
    topologies: tuple[DeployedTopology, ...]
    initial: InitialWeights | None = None  # that all agents start from; None: drawn
    transform: Transform | None = None  # by which features and targets were standardised
    deliveries: topology.Deliveries | None = None  # of boundary rows, where links change from step to step
    stage: str = GRAPH  # of a run with an encoder (stages.py)
    handed: NDArray[Any] | None = None  # [n, width], what the stage before has handed over

    def at(self, number: int) -> "Deployment":
        """The same deployment with one of its topologies alone."""
        return replace(self, topologies=(self.topologies[number],))

    def initial_state(self) -> dict[str, Tensor] | None:
        """The initial weights as a state dict (model/modules.py); None: they are drawn."""
        if self.initial is None:
            return None
        params = {name: torch.from_numpy(part) for name, part in self.initial.params.items()}
        return to_state_dict(self.network, params)

    @property
    def graph(self) -> DataGraph:
        return self.topologies[0].graph

    @property
    def certificate(self) -> topology.Certificate:
        return self.topologies[0].certificate

    @property
    def shift(self) -> Any:
        return self.topologies[0].shift

    @property
    def shared_edges(self) -> NDArray[np.int64]:
        return self.topologies[0].shared_edges

    @property
    def edges_kept(self) -> float:
        return self.topologies[0].edges_kept

    @property
    def edges_relayed(self) -> float:
        return self.topologies[0].edges_relayed

    @property
    def num_agents(self) -> int:
        return self.certificate.num_agents

    @property
    def links(self) -> NDArray[np.bool_]:
        """Links between agents [m, m]."""
        return self.certificate.links

    @property
    def exchanging(self) -> NDArray[np.bool_]:
        """Agents that send each other rows or weights, over a link or relayed [m, m]."""
        pairs = self.links.copy()
        for k, z in self.topologies[0].routes.paths:
            pairs[k, z] = pairs[z, k] = True
        return pairs

    @property
    def combination(self) -> NDArray[np.float64]:
        """C [m, m]; of a sequence [topologies, m, m]."""
        matrices = [one.certificate.combination for one in self.topologies]
        return matrices[0] if len(matrices) == 1 else np.stack(matrices)


def make_deployment(
    graph: DataGraph,
    settings: Settings,
    assignment: NDArray[np.int64] | None = None,
    combination: NDArray[np.float64] | None = None,
    shift: Any = None,
    progress: Progress | None = None,
    initial: GivenWeights | None = None,
) -> Deployment:
    """Join the parts by the settings, or by an assignment, a C, a shift operator D or initial weights that the user
    gives.

    A given C is [m, m], or [topologies, m, m] for a sequence. A given D is used as it is; without relays it must not be
    nonzero between agents that do not talk. Features and targets are standardised as the settings or the initial
    weights want it.
    """
    m = settings.agents
    check_agents(m)
    choose_score(settings.score, graph.task)  # refuses one that does not fit
    if shift is not None:
        shift = sparse.csr_array(shift)
    if assignment is not None:
        owner = check_assignment(assignment, graph.num_vertices, m)
    else:
        owner = assign_vertices(graph, settings)
    network = build_network(
        find_input_width(graph.num_features, graph.num_outputs, settings), graph.num_outputs, settings
    )
    weights = take_initial(initial, settings, network)
    transform = choose_transform(graph, settings, weights)
    if transform is not None:
        graph = transform.apply(graph, settings.dtype)
    shared = shared_edges(graph, owner, m)
    given = [None] if combination is None else [combination] if np.ndim(combination) != 3 else [*combination]
    certificates = [
        connect(shared, settings, progress) if C is None else certify_given(C, shared, settings) for C in given
    ]
    topologies = tuple(_deploy(graph, shared, settings, owner, certificate, shift) for certificate in certificates)
    return Deployment(owner, network, topologies, weights, transform, _plan_deliveries(topologies, settings))


def _plan_deliveries(topologies: Sequence[DeployedTopology], settings: Settings) -> topology.Deliveries | None:
    """Deliveries of boundary rows where links change."""
    first = topologies[0]
    sequence = first.certificate.sequence
    if sequence is None:
        return None
    if len(topologies) > 1:
        raise GossamerError(
            f"--topology {settings.topology} makes a sequence of its own; give one C for all links, not "
            f"{len(topologies)}, or another topology"
        )
    shared = topology.needed_links(first.shared_edges)
    return topology.Deliveries(sequence, shared, first.routes, settings.missing, settings.max_age)


def _deploy(
    graph: DataGraph,
    shared: NDArray[np.int64],
    settings: Settings,
    owner: NDArray[np.int64],
    certificate: topology.Certificate,
    shift: Any,
) -> DeployedTopology:
    """A topology with the data edges that its links carry."""
    links = certificate.links
    require_assumptions(certificate, settings)
    if uses_masks(settings):
        check_senders(certificate.combination, range(settings.agents))
    carried = topology.carried_edges(graph.edges, owner, links)
    over_links = float(carried.mean()) if len(carried) else 1.0
    relays = settings.lost_edges == "relay"
    if shift is not None:
        _check_shift(shift, graph.num_vertices, owner, None if relays else links)
    if relays:
        demand = shared if shift is None else shared + _count_joined(shift, owner, settings.agents)
        routes = topology.plan_routes(links, demand)
        given = make_shift(graph.adjacency, settings.shift_kind) if shift is None else shift
        return DeployedTopology(certificate, graph, given, shared, 1.0, 1.0 - over_links, routes)
    kept = graph.restrict_to(carried)
    if kept is not graph:
        shared = shared_edges(kept, owner, settings.agents)
    given = make_shift(kept.adjacency, settings.shift_kind) if shift is None else shift
    return DeployedTopology(certificate, kept, given, shared, over_links)


def _count_joined(shift: Any, owner: NDArray[np.int64], m: int) -> NDArray[np.int64]:
    """Entries of D between the vertices of each two agents, in both directions [m, m]."""
    entries = shift.tocoo()
    ends = owner[entries.row], owner[entries.col]
    joined = np.bincount(ends[0] * m + ends[1], entries.data != 0, m * m).astype(np.int64).reshape(m, m)
    return joined + joined.T


def choose_transform(graph: DataGraph, settings: Settings, initial: InitialWeights | None) -> Transform | None:
    """The transform of features and targets: that of the initial weights, or one that standardises the graph."""
    if initial is not None:
        return initial.transform
    return measure_transform(graph) if settings.standardise else None


def assign_vertices(graph: DataGraph, settings: Settings) -> NDArray[np.int64]:
    """Assign vertices to agents, a(i) [n], by the settings: a method, or a CSV file with columns vertex,agent."""
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
    expected = f"rows vertex,agent with vertices of {graph.name} and agent numbers"
    for line, (vertex, agent) in read_named_rows(path, ("vertex", "agent"), expected):
        try:
            owner[number[vertex]] = parse_whole_number(agent)
        except (KeyError, ValueError) as error:
            found = shown(vertex) if isinstance(error, KeyError) else shown(agent)
            raise GossamerError(f"{path}, line {line}: expected {expected}; this does not fit: {found}") from None
    missing = np.flatnonzero(owner < 0)
    if len(missing):
        first = missing[0] if graph.names is None else shown(graph.names[missing[0]])
        raise GossamerError(f"{path} gives no agent to {len(missing)} vertices, the first is vertex {first}")
    with naming(path):
        return check_assignment(owner, graph.num_vertices, settings.agents)


def _check_shift(shift: Any, n: int, owner: NDArray[np.int64], links: NDArray[np.bool_] | None) -> None:
    """Refuse a D of another size, or that joins agents without a link; None: relays reach all."""
    if shift.shape != (n, n):
        raise GossamerError(f"the shift operator must be {n} x {n}, got {shift.shape}")
    if links is None:
        return
    entries = shift.tocoo()
    k, z = owner[entries.row], owner[entries.col]
    missing = (k != z) & ~links[k, z]
    if missing.any():
        first = np.flatnonzero(missing)[0]
        raise GossamerError(
            f"the shift operator joins vertices {entries.row[first]} and {entries.col[first]} of "
            f"agents {k[first]} and {z[first]}, which do not talk ({missing.sum()} such entries)"
        )
