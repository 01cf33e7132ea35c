"""Positions of sensors and distances between them: coordinates, road distances, and positions from distances alone.

Positions from distances are by classical scaling (Torgerson 1952, Multidimensional scaling: theory and method).
"""

import math
from pathlib import Path

import numpy as np
from scipy.sparse import csgraph

from gossamer.array_types import Floats
from gossamer.data.rows import parse_whole_number, read_named_rows
from gossamer.errors import GossamerError, one_line

EARTH = 6371.0088  # mean radius, km
ROAD_ROWS = "rows from,to,cost with numbers"
SPACE = 1.0  # between two components of an embedding, km

Roads = list[tuple[int, int, float]]  # from, to, length


def haversine(lat: Floats, lon: Floats) -> Floats:
    """Great-circle distances [n, n] in km: sin^2(d / 2R) = sin^2(dlat / 2) + cos(lat_i) cos(lat_j) sin^2(dlon / 2)."""
    y, x = np.radians(lat), np.radians(lon)
    dy, dx = y[:, None] - y[None, :], x[:, None] - x[None, :]
    half = np.sin(dy / 2) ** 2 + np.cos(y)[:, None] * np.cos(y)[None, :] * np.sin(dx / 2) ** 2
    return np.asarray(2 * EARTH * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))


def project_positions(lat: Floats, lon: Floats) -> Floats:
    """Project coordinates to [n, 2] in km, east and north of the sensors' mean: R (cos(mean lat) dlon, dlat)."""
    north = np.radians(lat - lat.mean())
    east = np.radians(lon - lon.mean()) * math.cos(math.radians(float(lat.mean())))
    return EARTH * np.stack([east, north], axis=1)


def read_roads(path: Path, n: int) -> Roads:
    """Read a table from,to,cost between sensors numbered 0 to n - 1; a byte-order mark is skipped."""
    roads: Roads = []
    for line, (start, end, cost) in read_named_rows(path, ("from", "to", "cost"), ROAD_ROWS):
        try:
            i, j, length = parse_whole_number(start), parse_whole_number(end), float(cost)
        except ValueError as error:
            raise GossamerError(f"{path}, line {line}: expected {ROAD_ROWS}; {one_line(error)}") from None
        if not (0 <= i < n and 0 <= j < n):
            raise GossamerError(
                f"{path}, line {line}: the road from {i} to {j} names a sensor that does not exist; "
                f"the readings have {n} sensors, numbered 0 to {n - 1}"
            )
        if not 0 <= length < math.inf:
            raise GossamerError(f"{path}, line {line}: expected a road's length in metres, got {length}")
        roads.append((i, j, length))
    if not roads:
        raise GossamerError(f"{path} holds no road; expected rows from,to,cost")
    return roads


def shortest_paths(roads: Roads, n: int) -> Floats:
    """Lengths of the shortest paths between all sensors [n, n] in the undirected road graph; infinite if none."""
    length = np.full((n, n), np.inf)
    for i, j, cost in roads:
        length[i, j] = length[j, i] = min(length[i, j], cost)
    return np.asarray(csgraph.dijkstra(csgraph.csgraph_from_dense(length, null_value=np.inf), directed=False))


def embed_distances(distance: Floats) -> Floats:
    """Embed distances [n, n] in the plane [n, 2], component by component.

    Each component is embedded by classical scaling, its longer axis to the east. From west to east the components
    follow by falling size (then by their first sensor) with 1 km between them, centred on one line.
    """
    n = len(distance)
    _, component = csgraph.connected_components(np.isfinite(distance), directed=False)
    members = [np.flatnonzero(component == c) for c in range(component.max() + 1)]
    places, west = np.zeros((n, 2)), 0.0
    for inside in sorted(members, key=lambda rows: (-len(rows), rows[0])):
        own = scale_classically(distance[np.ix_(inside, inside)])
        low, high = own.min(0), own.max(0)
        places[inside] = own - [low[0] - west, (low[1] + high[1]) / 2]
        west += high[0] - low[0] + SPACE
    return places


def scale_classically(distance: Floats) -> Floats:
    """Embed distances d [n, n] by the two largest eigenvalues of -1/2 J d^2 J, J = I - 11^T/n, in the plane [n, 2].

    The sign of an axis makes its entry of largest magnitude positive: the same map on every machine.
    """
    n = len(distance)
    J = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-0.5 * J @ distance**2 @ J)
    places = np.zeros((n, 2))
    for axis in range(min(2, n)):
        v = vectors[:, n - 1 - axis]
        largest = np.abs(v).argmax()
        places[:, axis] = v * np.sign(v[largest]) * math.sqrt(max(0.0, values[n - 1 - axis]))
    return places
