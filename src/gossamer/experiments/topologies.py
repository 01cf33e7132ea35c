"""A topology on its own: from a data set or a file with B to a certificate, a JSON file and a picture (Sec. IV)."""

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
from gossamer.files import write_atomically
from gossamer.report.agent_graph import draw_topology
from gossamer.runs.deployment import Progress, assign_vertices, build_network, connect
from gossamer.runs.directory import create
from gossamer.runs.documents import to_json
from gossamer.runs.settings import Settings


@dataclass(frozen=True)
class Topology:
    """A certificate with what it was made for."""

    name: str
    shared_edges: NDArray[np.float64]  # B [m, m]
    certificate: topology.Certificate
    num_parameters: int  # of the model whose weights a round moves
    edges_kept: float | None = None  # share of the data edges that the links carry, where there are data

    def to_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        return {"name": self.name, **self.certificate.to_dict(self.num_parameters), "edges_kept": self.edges_kept}

    def save(self, folder: Path) -> None:
        """Write topology.json and topology.png into a new folder."""
        create(folder)
        write_atomically(folder / "topology.json", (to_json(self.to_dict()) + "\n").encode())
        draw_topology(folder / "topology.png", self.certificate, self.shared_edges, title=self.name)


def of_data(
    graph: DataGraph,
    settings: Settings,
    num_parameters: int | None = None,
    progress: Progress | None = None,
    **design_options: Any,
) -> Topology:
    """The topology of a data set's agents; the model is the one that the settings would train."""
    owner = assign_vertices(graph, settings)
    shared = topology.check_shared_edges(shared_edges(graph, owner, settings.agents))
    certificate = connect(shared, settings, progress, **design_options)
    carried = topology.carried_edges(graph.edges, owner, certificate.links)
    return Topology(
        graph.name,
        shared,
        certificate,
        num_parameters or build_network(graph.num_features, graph.num_outputs, settings).num_parameters,
        float(carried.mean()) if len(carried) else 1.0,
    )


def shared_edges_of(graph: DataGraph, settings: Settings) -> NDArray[np.float64]:
    """B [m, m] of a data set under the settings' assignment."""
    return topology.check_shared_edges(shared_edges(graph, assign_vertices(graph, settings), settings.agents))


def of_matrix(
    name: str,
    shared: NDArray[np.float64],
    settings: Settings,
    num_parameters: int,
    progress: Progress | None = None,
    **design_options: Any,
) -> Topology:
    """The topology for a matrix B [m, m] of shared edges."""
    B = topology.check_shared_edges(shared)
    return Topology(name, B, connect(B, settings, progress, **design_options), num_parameters)


def read_shared_edges(path: Path) -> NDArray[np.float64]:
    """B [m, m] from a .npy file, or from text with a row a line, separated by commas or blanks."""
    try:
        matrix = read_array(path) if path.suffix == ".npy" else read_matrix(path)
    except FileError as error:
        raise GossamerError(
            f"{error}; expected B as .npy, or as text with a row a line and numbers separated by commas or blanks"
        ) from None
    with naming(path):
        return topology.check_shared_edges(matrix)
