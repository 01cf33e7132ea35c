"""Topologies without a training run: from a data set, or from a file with B, to a certificate (Sec. IV)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import topology
from gossamer.assignment import shared_edges
from gossamer.data import DataGraph
from gossamer.data.arrays import read_array
from gossamer.data.rows import read_matrix
from gossamer.errors import FileError, GossamerError, naming
from gossamer.runs.connecting import connect
from gossamer.runs.deployment import assign_vertices
from gossamer.runs.settings import Settings
from gossamer.runs.stages import build_network


@dataclass(frozen=True)
class CertifiedTopology:
    """A certificate with the shared edges and the model that it was made for."""

    name: str
    shared_edges: NDArray[np.float64]  # B [m, m]
    certificate: topology.Certificate
    num_parameters: int  # of the model whose weights a consensus round sends
    routes: topology.Routes  # of agents that share edges without a link; none where these are dropped
    edges_kept: float | None = None  # fraction of the data edges, over links or relayed; None without data
    edges_relayed: float | None = None  # fraction that goes over agents between; None without data

    @property
    def carried_edges(self) -> NDArray[np.float64]:
        """Shared edges that are not dropped [m, m]."""
        carried = self.certificate.links.copy()
        for k, z in self.routes.paths:
            carried[k, z] = carried[z, k] = True
        return np.where(carried, self.shared_edges, 0.0)

    @property
    def edges_by_hops(self) -> dict[int, float]:
        """Shared edges that are not dropped by the links of their route, ascending; 1 is a link of their own."""
        return topology.count_hops(self.routes, self.carried_edges)

    @property
    def link_load(self) -> list[tuple[int, int, float]]:
        """Each link k < z with the shared edges whose route passes it."""
        load = topology.link_load(self.routes, self.carried_edges)
        pairs = np.argwhere(np.triu(self.certificate.links, 1)).tolist()
        return [(k, z, float(load[k, z])) for k, z in pairs]

    def to_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        return {
            "name": self.name,
            **self.certificate.to_dict(self.num_parameters),
            "edges_kept": self.edges_kept,
            "edges_relayed": self.edges_relayed,
            "direct_edges": self.edges_by_hops.get(1, 0.0),
            "relayed_edges": {str(hops): edges for hops, edges in self.edges_by_hops.items() if hops > 1},
            "routes": [list(path) for path in self.routes.paths.values()],
            "link_load": [list(one) for one in self.link_load],
        }


def connect_data(
    graph: DataGraph,
    settings: Settings,
    num_parameters: int | None = None,
    progress: topology.Progress | None = None,
    **design_options: Any,
) -> CertifiedTopology:
    """Connect the agents of a data set; the model is by default the one that the settings would train."""
    owner = assign_vertices(graph, settings)
    shared = topology.check_shared_edges(shared_edges(graph, owner, settings.agents))
    certificate = connect(shared, settings, progress, **design_options)
    carried = topology.carried_edges(graph.edges, owner, certificate.links)
    direct = float(carried.mean()) if len(carried) else 1.0
    relays = settings.lost_edges == "relay"
    return CertifiedTopology(
        graph.name,
        shared,
        certificate,
        num_parameters or build_network(graph.num_features, graph.num_outputs, settings).num_parameters,
        _plan_routes(certificate, shared, settings),
        1.0 if relays else direct,
        1.0 - direct if relays else 0.0,
    )


def connect_matrix(
    name: str,
    shared: NDArray[np.float64],
    settings: Settings,
    num_parameters: int,
    progress: topology.Progress | None = None,
    **design_options: Any,
) -> CertifiedTopology:
    """Connect the agents of a matrix B [m, m] of shared edges."""
    B = topology.check_shared_edges(shared)
    certificate = connect(B, settings, progress, **design_options)
    return CertifiedTopology(name, B, certificate, num_parameters, _plan_routes(certificate, B, settings))


def _plan_routes(certificate: topology.Certificate, shared: NDArray[np.float64], settings: Settings) -> topology.Routes:
    """The routes of agents that share edges without a link; none where these are dropped."""
    return topology.plan_routes(certificate.links, shared) if settings.lost_edges == "relay" else topology.Routes()


def count_shared_edges(graph: DataGraph, settings: Settings) -> NDArray[np.float64]:
    """B [m, m] of a data set under the settings' assignment."""
    return topology.check_shared_edges(shared_edges(graph, assign_vertices(graph, settings), settings.agents))


def read_shared_edges(path: Path) -> NDArray[np.float64]:
    """Read B [m, m] from a .npy file, or from text with a row a line, separated by commas or blanks."""
    try:
        matrix = read_array(path) if path.suffix == ".npy" else read_matrix(path)
    except FileError as error:
        raise GossamerError(
            f"{error}; expected B as .npy, or as text with a row a line and numbers separated by commas or blanks"
        ) from None
    with naming(path):
        return topology.check_shared_edges(matrix)
