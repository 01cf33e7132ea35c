"""New vertices of one agent, for inference with a network that was not trained with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.data.checks import Features, validate_edges, validate_features
from gossamer.data.site import parse_vertex, read_site_arrays, take_whole_numbers
from gossamer.data.tables import read_edges, read_features
from gossamer.errors import GossamerError, naming, shown


@dataclass(frozen=True)
class NewVertices:
    """Vertices that a network was not trained with, and edges among them and to vertices that it was."""

    names: tuple[str, ...]
    vertices: NDArray[np.int64]  # their numbers
    features: Features
    edges: NDArray[np.int64]  # [edges, 2], of vertex numbers
    weights: NDArray[np.float64]


def read_new_vertices(path: Path, known: NDArray[np.int64], known_names: Sequence[str] | None = None) -> NewVertices:
    """Read new vertices from a folder with features.csv and, if wished, edges.csv, or from an .npz file with the arrays
    vertices, features, edges and, if wished, weights. `known` are the numbers of the agent's own vertices, by which the
    new ones name them unless they have names in tables."""
    if path.is_dir():
        names, features = read_features(path / "features.csv")
        if known_names is None:
            new = np.array([parse_vertex(name, path / "features.csv") for name in names], dtype=np.int64)
        else:
            both = sorted(set(names) & set(known_names))
            if both:
                raise GossamerError(f"{path}: vertex {shown(both[0])} is this agent's already; give new vertices alone")
            new = known.max(initial=0) + 1 + np.arange(len(names))
        edges, weights = np.zeros((0, 2), dtype=np.int64), None
        if (path / "edges.csv").is_file():
            old = map(str, known.tolist()) if known_names is None else known_names
            numbers = dict(zip([*names, *old], [*new.tolist(), *known.tolist()], strict=True))
            edges, weights = read_edges(path / "edges.csv", numbers, "features.csv or among this agent's vertices")
    elif path.suffix == ".npz" and path.is_file():
        arrays = read_site_arrays(path, ("vertices",), ("edges", "weights"))
        new, features = take_whole_numbers(path, arrays, "vertices", 1), arrays["features"]
        names = tuple(map(str, new.tolist()))
        edges = take_whole_numbers(path, arrays, "edges", 2) if "edges" in arrays else np.zeros((0, 2), dtype=np.int64)
        weights = arrays.get("weights")
    else:
        raise GossamerError(
            f"expected a folder with features.csv and edges.csv, or an .npz file, with an agent's new vertices; got "
            f"{shown(str(path))}"
        )
    with naming(path):
        return _check_new(names, new, validate_features(features), edges, weights, known)


def _check_new(
    names: tuple[str, ...],
    new: NDArray[np.int64],
    features: Features,
    edges: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    known: NDArray[np.int64],
) -> NewVertices:
    if features.shape[0] != len(new):
        raise GossamerError(f"expected one row of features for each of {len(new)} vertices, got {features.shape[0]}")
    if len(np.unique(new)) != len(new) or (new < 0).any():
        raise GossamerError("new vertices must have different numbers from 0 on")
    both = np.intersect1d(new, known)
    if len(both):
        raise GossamerError(f"vertex {both[0]} is this agent's already; give new vertices alone")
    everyone = np.concatenate([known, new])
    strangers = ~np.isin(edges, everyone)
    if strangers.any():
        raise GossamerError(
            f"an edge leads to vertex {edges[strangers][0]}, which is neither new nor this agent's own: of other "
            "agents' vertices it knows no features; leave such edges out"
        )
    if (~np.isin(edges, new).any(1)).any():
        raise GossamerError("an edge joins two vertices that were trained with; give the edges of new vertices alone")
    order = np.argsort(everyone)
    places = order[np.searchsorted(everyone[order], edges)]
    pairs, found = validate_edges(places, weights, len(everyone), everyone)
    return NewVertices(names, new, features, everyone[pairs], found)
