"""A deployment: data, assignment and topology joined (Sec. III-A)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer import topology
from gossamer.agents.consensus.masked import check_senders
from gossamer.agents.consensus.plain import PlainMethod
from gossamer.agents.host import Host, TrainingOptions, draw_initial_params, make_host, make_share_host
from gossamer.agents.rules import make_rule
from gossamer.agents.salts import Secrets
from gossamer.agents.scores import choose_score
from gossamer.agents.share import Share
from gossamer.assignment import ASSIGNMENTS, assign, check_assignment, shared_edges
from gossamer.data import DataGraph
from gossamer.data.rows import parse_whole_number, read_named_rows
from gossamer.data.standardisation import Transform, measure_transform
from gossamer.errors import GossamerError, naming, shown
from gossamer.model import Network, make_network, make_shift
from gossamer.model.modules import to_state_dict
from gossamer.runs.capacity import check_agents, check_host
from gossamer.runs.connecting import certify_given, connect, require_assumptions
from gossamer.runs.initial_weights import GivenWeights, InitialWeights, start_from, take_initial
from gossamer.runs.settings import Settings
from gossamer.topology import Progress as Progress


@dataclass(frozen=True)
class DeployedTopology:
    """C on its links, and the part of the data graph that these carry."""

    certificate: topology.Certificate  # C and its properties
    graph: DataGraph  # without the edges that no link carries
    shift: Any  # D, CSR [n, n]
    shared_edges: NDArray[np.int64]  # B [m, m]
    edges_kept: float  # fraction of the data edges that the links carry


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
    def num_agents(self) -> int:
        return self.certificate.num_agents

    @property
    def links(self) -> NDArray[np.bool_]:
        """Links between agents [m, m]."""
        return self.certificate.links

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

    A given C is [m, m], or [topologies, m, m] for a sequence. A given D must not be nonzero between agents that do not
    talk; it is used as it is. Features and targets are standardised as the settings or the initial weights want it.
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
    network = build_network(graph.num_features, graph.num_outputs, settings)
    weights = take_initial(initial, settings, network)
    transform = choose_transform(graph, settings, weights)
    if transform is not None:
        graph = transform.apply(graph, settings.dtype)
    shared = shared_edges(graph, owner, m)
    given = [None] if combination is None else [combination] if np.ndim(combination) != 3 else [*combination]
    certificates = [
        connect(shared, settings, progress) if C is None else certify_given(C, shared, settings) for C in given
    ]
    return Deployment(
        owner,
        network,
        tuple(_deploy(graph, shared, settings, owner, certificate, shift) for certificate in certificates),
        weights,
        transform,
    )


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
    require_assumptions(certificate.assumptions, settings)
    if settings.masks:
        check_senders(certificate.combination, range(settings.agents))
    carried = topology.carried_edges(graph.edges, owner, links)
    kept = graph.restrict_to(carried)
    if shift is None:
        shift = make_shift(kept.adjacency, settings.shift_kind)
    else:
        _check_shift(shift, graph.num_vertices, owner, links)
    edges_kept = float(carried.mean()) if len(carried) else 1.0
    if kept is not graph:
        shared = shared_edges(kept, owner, settings.agents)
    return DeployedTopology(certificate, kept, shift, shared, edges_kept)


def choose_transform(graph: DataGraph, settings: Settings, initial: InitialWeights | None) -> Transform | None:
    """The transform of features and targets: that of the initial weights, or one that standardises the graph."""
    if initial is not None:
        return initial.transform
    return measure_transform(graph) if settings.standardise else None


def build_network(num_features: int, num_outputs: int, settings: Settings) -> Network:
    """Build the network of the settings."""
    return make_network(
        settings.layers,
        num_features,
        num_outputs,
        hidden=settings.hidden,
        order=settings.order,
        activation=settings.activation,
        bias=settings.bias,
        dropout=settings.dropout or 0.0,
        input_dropout=settings.input_dropout,
    )


def training_of(settings: Settings) -> TrainingOptions:
    """Training options of the settings."""
    return TrainingOptions(
        rule=make_rule(settings.update, settings.momentum),
        step_size=settings.step_size,
        step_decay=settings.step_decay,
        weight_decay=settings.weight_decay,
        decay_layers=settings.decay_layers,
        consensus_every=settings.consensus_every,
        mix_first=settings.mix_first,
        batch=settings.batch or 0,
        seed=settings.seed,
        track=settings.tracks,
        keep_best=settings.keep == "best",
        row_codec=settings.row_codec,
        consensus=settings.consensus_method if settings.agents > 1 else PlainMethod(),
    )


def build_host(
    deployment: Deployment,
    settings: Settings,
    agents: Any = None,
    hosting: NDArray[np.int64] | None = None,
    secrets: Secrets | None = None,
) -> Host:
    """Build the host of all agents, or of the given ones; `hosting` [m] is the host of each agent."""
    hosted = range(deployment.num_agents) if agents is None else agents
    vertices = int(np.isin(deployment.assignment, list(hosted)).sum())
    check_host(deployment.network, settings, len(hosted), vertices)
    host = make_host(
        deployment.graph,
        [(one.shift, one.certificate.combination) for one in deployment.topologies],
        deployment.network,
        deployment.assignment,
        hosted,
        training_of(settings),
        initial_deviation=settings.initial_deviation,
        same_initial=settings.starts_alike,
        dtype=settings.torch_dtype,
        hosting=hosting,
        balanced=settings.class_weights == "balanced",
        secrets=secrets,
    )
    return start_from(host, None if deployment.initial is None else deployment.initial.params)


def build_share_host(share: Share, settings: Settings, secrets: Secrets | None = None) -> Host:
    """Build the host of a share's agents at step 0, from the share and the settings alone."""
    choose_score(settings.score, share.task)
    outputs = share.num_classes if share.num_classes is not None else int(share.targets.shape[-1])
    network = build_network(int(share.features.shape[-1]), outputs, settings)
    check_host(network, settings, len(share.agents), int(share.hosted.sum()))
    params = draw_initial_params(
        network,
        share.agents,
        settings.seed,
        settings.initial_deviation,
        settings.starts_alike,
        settings.torch_dtype,
    )
    return start_from(make_share_host(share, network, training_of(settings), params, secrets), share.initial)


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
