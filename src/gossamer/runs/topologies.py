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
    edges_kept: float | None = None  # fraction of the data edges that the links carry; None without data

    def to_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        return {"name": self.name, **self.certificate.to_dict(self.num_parameters), "edges_kept": self.edges_kept}


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
    return CertifiedTopology(
        graph.name,
        shared,
        certificate,
        num_parameters or build_network(graph.num_features, graph.num_outputs, settings).num_parameters,
        float(carried.mean()) if len(carried) else 1.0,
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
    return CertifiedTopology(name, B, connect(B, settings, progress, **design_options), num_parameters)


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
