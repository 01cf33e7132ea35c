"""Traffic flows of PeMS loop detectors as graph signals (Sec. V-F): Orange County, PeMSD4 and PeMSD8.

The readings are from the Caltrans Performance Measurement System (Chen, Petty, Skabardonis, Varaiya and Jia 2001,
Freeway performance measurement system: mining loop detector data), PeMSD4 and PeMSD8 as published with Guo, Lin, Feng,
Song and Wan 2019, Attention based spatial-temporal graph convolutional networks for traffic flow forecasting.

A vertex is a sensor, a time step an example: the last 6 readings, 5 minutes apart, predict the next one. The publishers
have thinned the sensors at 3.5 km already, as the paper asks. The split is 6:2:2 in time order (the paper uses its
source's), with one z-score for all sensors, from the training readings alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.array_types import Floats
from gossamer.data.arrays import open_arrays
from gossamer.data.fetch import DownloadProgress, find_or_download, find_stored
from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.roads import embed_distances, haversine, project_positions, read_roads, shortest_paths
from gossamer.errors import FileError, GossamerError, naming
from gossamer.machine import as_size, available_memory

PAST = 6  # readings in an example: half an hour
SQUARED_SCALE = 10.0  # of distances, km^2
THRESHOLD = 0.5  # weights below are dropped: d above 2.63 km
FLOW = 0  # its channel
DISTANCES = 6  # matrices [sensors, sensors] in memory at once


@dataclass(frozen=True)
class File:
    """A file: its path below GOSSAMER_DATA, its published address and its git blob id, if known."""

    path: str
    url: str | None = None
    blob: str | None = None


@dataclass(frozen=True)
class Detectors:
    """Readings of a region's detectors, and road distances where the readings have no coordinates."""

    readings: File
    roads: File | None = None


_ASTGCN = "https://raw.githubusercontent.com/wanhuaiyu/ASTGCN/master/data/"
TRAFFIC = {
    "pems-orange": Detectors(File("traffic/pems_orange_d12.npz")),
    "pemsd4": Detectors(
        File("traffic/pems04.npz", _ASTGCN + "PEMS04/pems04.npz", "a1a39eac4b86963b1ac22874fd1cc693eb642cd2"),
        File("traffic/PEMS04_distance.csv", _ASTGCN + "PEMS04/distance.csv"),
    ),
    "pemsd8": Detectors(
        File("traffic/pems08.npz", _ASTGCN + "PEMS08/pems08.npz", "f5f3e84a00417573aa8487fe1e9e8cd13c6026c8"),
        File("traffic/PEMS08_distance.csv", _ASTGCN + "PEMS08/distance.csv"),
    ),
}


def load_traffic(name: str, progress: DownloadProgress | None = None) -> DataGraph:
    """Load one of TRAFFIC: features [n, T - 6, 6], targets [n, T - 6, 1], A_ij = exp(-d_ij^2 / 10) where it is >= 0.5.

    d_ij in kilometres: great circles where the sensors have coordinates, else shortest paths along the roads.
    """
    detectors = TRAFFIC[name]
    path = find_or_download(name, detectors.readings.path, detectors.readings.url, detectors.readings.blob, progress)
    arrays = _read(path, ("data",) if detectors.roads else ("data", "lat", "lon", "sensor_id"))
    flow = _flow(arrays["data"], path)
    _check_distances(len(flow), path)
    names = None
    if detectors.roads is None:
        lat, lon = (_coordinates(arrays[key], len(flow), key, path) for key in ("lat", "lon"))
        distance, positions = haversine(lat, lon), project_positions(lat, lon)
        names = tuple(map(str, _identifiers(arrays["sensor_id"], path)))
    else:
        table = find_or_download(name, detectors.roads.path, detectors.roads.url, detectors.roads.blob, progress)
        distance = shortest_paths(read_roads(table, len(flow)), len(flow)) / 1000.0  # the files are in metres
        positions = embed_distances(distance)
    edges, weights = proximity(distance)
    with naming(path):
        return make_graph(name, edges, **make_examples(flow, path), weights=weights, positions=positions, names=names)


def is_present(name: str) -> bool:
    """True if all files of a data set are on this machine."""
    detectors = TRAFFIC[name]
    return all(find_stored(file.path) is not None for file in (detectors.readings, detectors.roads) if file is not None)


def proximity(distance: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Edges i < j with A_ij = exp(-d_ij^2 / 10) >= 0.5, and these weights; d [n, n] in km."""
    weight = np.exp(-(distance**2) / SQUARED_SCALE)
    edges = np.argwhere(np.triu(weight >= THRESHOLD, k=1)).astype(np.int64)
    return edges, weight[edges[:, 0], edges[:, 1]]


def make_examples(flow: NDArray[np.float32], path: Path) -> dict[str, Any]:
    """Make features, targets and masks [n, T - 6, ...] of readings [n, T].

    Example s holds the readings s ... s + 5 and predicts reading s + 6. It belongs to training, validation or test by
    the time of its target: the first 60 %, the next 20 %, the last 20 % of the T steps. Mean and deviation of
    the z-score are those of all sensors' readings in the first 60 %.
    """
    n, T = flow.shape
    first, second = T * 6 // 10, T * 8 // 10
    if first <= PAST:
        raise GossamerError(f"{path} has {T} time steps; expected enough for {PAST} readings before a prediction")
    known = flow[:, :first]
    deviation = float(known.std(dtype=np.float64))
    if deviation == 0.0:
        raise GossamerError(f"{path}: the flow never changes in the first 60 % of the steps; expected real readings")
    with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes infinite, which make_graph refuses
        z = (flow - np.float32(known.mean(dtype=np.float64))) / np.float32(deviation)
    when = np.arange(PAST, T)
    parts = {"train": when < first, "validation": (when >= first) & (when < second), "test": when >= second}
    return {
        "features": np.lib.stride_tricks.sliding_window_view(z[:, :-1], PAST, axis=1),
        "targets": z[:, PAST:, None],
        **{part: np.tile(there, (n, 1)) for part, there in parts.items()},
    }


def interpolate(flow: NDArray[np.float32], path: Path) -> NDArray[np.float32]:
    """Fill missing readings [n, T] in time, in place: linearly, and before the first or after the last reading by the
    nearest one."""
    steps = np.arange(flow.shape[1])
    for i in np.flatnonzero(np.isnan(flow).any(1)):
        there = ~np.isnan(flow[i])
        if not there.any():
            raise GossamerError(f"{path}: sensor {i} has no reading at all; remove it, or take an undamaged file")
        flow[i, ~there] = np.interp(steps[~there], steps[there], flow[i, there])
    return flow


def _flow(data: Any, path: Path) -> NDArray[np.float32]:
    """Take the flow [n, T] from readings [T, n, channels], missing ones filled."""
    if data.ndim != 3 or 0 in data.shape or data.dtype.kind not in "iuf":
        raise GossamerError(
            f"{path}: expected `data` as numbers [time steps, sensors, channels], got {data.dtype} {data.shape}"
        )
    with np.errstate(over="ignore"):
        flow = np.ascontiguousarray(data[:, :, FLOW].T, dtype=np.float32)
    if np.isinf(flow).any():
        raise GossamerError(f"{path}: `data` holds infinite flows; a missing reading should be NaN")
    return interpolate(flow, path)


def _check_distances(n: int, path: Path) -> None:
    needed, available = DISTANCES * 8 * n**2, available_memory()
    if needed > available:
        raise GossamerError(
            f"{path}: the distances between {n} sensors take {as_size(needed)} of memory, and {as_size(available)} are "
            "available; is `data` [time steps, sensors, channels]?"
        )


def _coordinates(degrees: Any, n: int, key: str, path: Path) -> Floats:
    limit = 90 if key == "lat" else 180
    if degrees.shape != (n,) or degrees.dtype.kind not in "iuf" or not (np.abs(degrees) <= limit).all():
        raise GossamerError(f"{path}: expected `{key}` as {n} degrees, one for each sensor, got {degrees.shape}")
    return np.asarray(degrees, dtype=np.float64)


def _identifiers(names: Any, path: Path) -> Any:
    if names.ndim != 1:
        raise GossamerError(f"{path}: expected `sensor_id` as a list, one for each sensor, got {names.shape}")
    return names


def _read(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        with open_arrays(path) as file:
            return file.read(keys)
    except FileError as error:
        raise GossamerError(
            f"{path} is damaged or no file of PeMS readings ({error.reason}); expected an npz file with "
            f"{', '.join(keys)}. Remove it and load it again"
        ) from None
