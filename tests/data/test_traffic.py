"""Traffic data: distances, weights, examples and their split against the formulas, on small files and the real one."""

import math
import os
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csgraph
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.data import DataGraph, load
from gossamer.data.roads import (
    embed_distances,
    haversine,
    project_positions,
    read_roads,
    scale_classically,
    shortest_paths,
)
from gossamer.data.traffic import PAST, TRAFFIC, is_present
from gossamer.errors import GossamerError, GossamerWarning

T, N = 50, 5
LAT, LON = np.array([33.7, 33.71, 33.72, 33.75, 33.751]), np.array([-117.9, -117.89, -117.9, -117.87, -117.86])
ROADS = "from,to,cost\n0,1,1500\n1,2,500.5\n2,1,900\n0,2,9000\n3,4,2000\n"
Write = Callable[..., None]


def readings(seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(50, 400, (T, N, 3)).astype(np.float32)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Put small files where GOSSAMER_DATA has the real ones; the cache is empty."""
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data" / "traffic").mkdir(parents=True)

    def files(name: str, data: Any, roads: str | bytes = ROADS, **changes: Any) -> None:
        detectors = TRAFFIC[name]
        more = {} if detectors.roads else {"lat": LAT, "lon": LON, "sensor_id": np.arange(N) + 100, **changes}
        arrays = {"data": data, **more}
        np.savez(tmp_path / "data" / detectors.readings.path, **{k: v for k, v in arrays.items() if v is not None})
        if detectors.roads:
            content = roads if isinstance(roads, bytes) else roads.encode()
            (tmp_path / "data" / detectors.roads.path).write_bytes(content)

    return files


def quietly(name: str) -> DataGraph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GossamerWarning)  # the small graphs are in pieces
        return load(name)


def test_examples_are_six_readings_and_the_next_in_one_z_score(write: Write) -> None:
    data = readings()
    write("pems-orange", data)
    graph = quietly("pems-orange")
    flow = data[:, :, 0].astype(np.float64)
    z = (flow - flow[:30].mean()) / flow[:30].std()
    assert graph.features.shape == (N, T - PAST, PAST)
    assert graph.targets.shape == (N, T - PAST, 1)
    assert graph.features.dtype == graph.targets.dtype == np.float32
    for i in range(N):
        for s in range(T - PAST):
            np.testing.assert_allclose(graph.features[i, s], z[s : s + 6, i], atol=1e-5)
            np.testing.assert_allclose(graph.targets[i, s, 0], z[s + 6, i], atol=1e-5)
    assert graph.names == ("100", "101", "102", "103", "104")
    assert graph.num_classes is None


def test_the_split_is_in_time_order_by_what_is_predicted(write: Write) -> None:
    write("pems-orange", readings())
    graph = quietly("pems-orange")
    when = np.arange(PAST, T)
    for mask, steps in ((graph.train, (0, 30)), (graph.validation, (30, 40)), (graph.test, (40, 50))):
        for row in mask:
            np.testing.assert_array_equal(row, (when >= steps[0]) & (when < steps[1]))


def test_what_comes_after_the_training_steps_changes_nothing_in_them(write: Write) -> None:
    """Neither the statistics nor the examples of training see a later reading, where none is missing."""
    data = readings()
    write("pems-orange", data)
    before = quietly("pems-orange")
    data[30:] = 5000.0
    write("pems-orange", data)
    after = quietly("pems-orange")
    np.testing.assert_array_equal(after.features[before.train], before.features[before.train])
    np.testing.assert_array_equal(after.targets[before.train], before.targets[before.train])
    assert (after.targets[before.test] != before.targets[before.test]).all()


def test_missing_readings_are_interpolated_in_time_for_each_sensor(write: Write) -> None:
    data = readings()
    data[10:13, 1, 0] = np.nan
    data[:2, 2, 0] = np.nan
    data[-3:, 3, 0] = np.nan
    data[20, 0, 1] = np.nan  # not the flow
    filled = data[:, :, 0].astype(np.float64)
    filled[10:13, 1] = filled[9, 1] + (filled[13, 1] - filled[9, 1]) * np.array([0.25, 0.5, 0.75])
    filled[:2, 2] = filled[2, 2]
    filled[-3:, 3] = filled[-4, 3]
    write("pems-orange", data)
    graph = quietly("pems-orange")
    z = (filled - filled[:30].mean()) / filled[:30].std()
    np.testing.assert_allclose(graph.targets[:, :, 0], z[PAST:].T, atol=1e-5)


def test_edges_weigh_by_the_squared_distance_and_end_at_a_half(write: Write) -> None:
    write("pems-orange", readings())
    graph = quietly("pems-orange")
    d = haversine(LAT, LON)
    expected = np.where(np.exp(-(d**2) / 10) >= 0.5, np.exp(-(d**2) / 10), 0.0)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(graph.adjacency.toarray(), expected, rtol=1e-12)
    assert 0 < graph.num_edges < N * (N - 1) / 2
    assert graph.weights.min() >= 0.5


def test_great_circles_and_the_plane() -> None:
    """A quarter of the equator; a degree of latitude; and a plane whose distances are nearly those."""
    quarter = haversine(np.array([0.0, 0.0]), np.array([0.0, 90.0]))[0, 1]
    assert quarter == pytest.approx(6371.0088 * math.pi / 2)
    assert haversine(np.array([33.0, 34.0]), np.array([-117.0, -117.0]))[0, 1] == pytest.approx(111.195, abs=1e-3)
    flat = project_positions(LAT, LON)
    planar = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    np.testing.assert_allclose(planar, haversine(LAT, LON), rtol=1e-3)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["pemsd4", "pemsd8"])
def test_roads_are_metres_and_ways_may_lead_over_other_sensors(write: Write, name: str, mark: bytes) -> None:
    write(name, readings(), mark + ROADS.encode())
    graph = quietly(name)
    weight = {(0, 1): 1.5, (1, 2): 0.5005, (0, 2): 2.0005, (3, 4): 2.0}
    assert {tuple(edge) for edge in graph.edges.tolist()} == set(weight)
    expected = [math.exp(-(weight[tuple(edge)] ** 2) / 10) for edge in graph.edges.tolist()]
    np.testing.assert_allclose(graph.weights, expected, rtol=1e-12)
    assert graph.positions is not None
    assert graph.names is None


def test_an_embedding_keeps_planar_distances() -> None:
    places = np.random.default_rng(0).standard_normal((7, 2))
    d = np.linalg.norm(places[:, None] - places[None], axis=-1)
    found = scale_classically(d)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found[None], axis=-1), d, atol=1e-10)
    assert found[:, 0].std() >= found[:, 1].std()
    np.testing.assert_array_equal(scale_classically(np.zeros((1, 1))), [[0.0, 0.0]])


def test_components_stand_side_by_side_larger_ones_first() -> None:
    d = shortest_paths([(4, 5, 1.0), (0, 1, 2.0), (1, 2, 2.0)], 6)  # and sensor 3 alone
    places = embed_distances(d)
    groups = [places[[0, 1, 2]], places[[4, 5]], places[[3]]]
    for left, right in pairwise(groups):
        assert right[:, 0].min() - left[:, 0].max() == pytest.approx(1.0)
    assert np.ptp(groups[0][:, 0]) == pytest.approx(4.0)
    for group in groups:
        assert group[:, 1].min() + group[:, 1].max() == pytest.approx(0.0, abs=1e-9)


def test_a_road_without_length_is_still_a_road() -> None:
    np.testing.assert_array_equal(shortest_paths([(0, 1, 0.0)], 2), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "damaged or no file of PeMS readings.*expected an npz file with data"),
        ({"data": readings()[..., 0]}, r"expected `data` as numbers \[time steps, sensors, channels\].*\(50, 5\)"),
        ({"data": readings().astype(str)}, "expected `data` as numbers"),
        ({"data": readings()[:11]}, "has 11 time steps"),
        ({"data": np.ones((T, N, 3))}, "the flow never changes"),
        ({"data": np.full((T, N, 3), np.nan)}, "sensor 0 has no reading at all"),
        ({"data": np.full((T, N, 3), np.inf)}, "infinite flows"),
        ({"lat": LAT[:4]}, r"expected `lat` as 5 degrees.*\(4,\)"),
        ({"lon": np.full(N, np.nan)}, "expected `lon` as 5 degrees"),
        ({"sensor_id": None}, "damaged or no file of PeMS readings.*sensor_id"),
        ({"sensor_id": np.arange(4)}, "the names 4"),
    ],
)
def test_a_mistake_in_the_readings_is_told(write: Write, changes: dict[str, Any], message: str) -> None:
    write("pems-orange", **({"data": readings()} | changes))
    with pytest.raises(GossamerError, match=message):
        load("pems-orange")


@pytest.mark.parametrize(
    ("roads", "message"),
    [
        ("from,to,cost\n0,5,10\n", r"line 2: the road from 0 to 5 names a sensor that does not exist.*0 to 4"),
        ("from,to,cost\n0,1,10\n1,-1,10\n", "line 3: the road from 1 to -1"),
        ("from,to,cost\n0,1,-3\n", "expected a road's length in metres, got -3"),
        ("from,to,cost\n0,1,nan\n", "expected a road's length in metres"),
        ("from,to,cost\n0,1\n", "expected rows from,to,cost with numbers"),
        ("a,b\n0,1\n", "expected rows from,to,cost with numbers"),
        ("from,to,cost\n0,x,1\n", "expected rows from,to,cost with numbers"),
        ("from,to,cost\n", "holds no road"),
        (b"\xff\xfe\x00", "expected rows from,to,cost"),
    ],
)
def test_a_mistake_in_the_roads_is_told(write: Write, roads: str | bytes, message: str) -> None:
    write("pemsd4", readings(), roads)
    with pytest.raises(GossamerError, match=message):
        load("pemsd4")


def test_a_damaged_archive_is_refused(write: Write, tmp_path: Path) -> None:
    write("pemsd4", readings())
    path = tmp_path / "data" / TRAFFIC["pemsd4"].readings.path
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(GossamerError, match=r"damaged or no file of PeMS readings.*Remove it"):
        load("pemsd4")


def test_all_files_of_a_data_set_must_be_there(write: Write, tmp_path: Path) -> None:
    assert not is_present("pemsd4")
    write("pemsd4", readings())
    assert is_present("pemsd4")
    (tmp_path / "data" / "traffic" / "PEMS04_distance.csv").unlink()
    assert not is_present("pemsd4")


@pytest.mark.usefixtures("write")
def test_a_missing_data_set_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "pems-orange", "--preset", "paper", "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    told = " ".join(done.stderr.split())
    assert told.startswith("error: the data set 'pems-orange' is not in GOSSAMER_DATA")
    assert "traffic/pems_orange_d12.npz" in told
    assert "it has no published download" in told
    assert "Traceback" not in told


@pytest.mark.usefixtures("write")
def test_pemsd4_is_downloaded_with_its_blob_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def refuse(url: str, target: Path, blob: str | None, progress: Any = None) -> None:
        asked.append((url, blob))
        raise OSError("no network")

    monkeypatch.setattr("gossamer.data.fetch.download", refuse)
    with pytest.raises(GossamerError, match=r"'pemsd4' is not in GOSSAMER_DATA.*no network"):
        load("pemsd4")
    assert asked == [(TRAFFIC["pemsd4"].readings.url, TRAFFIC["pemsd4"].readings.blob)]


@pytest.fixture(scope="module")
def orange() -> DataGraph:
    folder = os.environ.get("GOSSAMER_DATA")
    if not folder or not (Path(folder) / TRAFFIC["pems-orange"].readings.path).is_file():
        pytest.skip(f"{TRAFFIC['pems-orange'].readings.path} is not in GOSSAMER_DATA ({folder or 'not set'})")
    return load("pems-orange")


def test_the_orange_county_graph(orange: DataGraph) -> None:
    assert (orange.num_vertices, orange.num_edges, orange.features.shape) == (81, 759, (81, 8058, 6))
    assert csgraph.connected_components(orange.adjacency)[0] == 1


def test_predicting_the_last_reading_again_in_orange_county(orange: DataGraph) -> None:
    error = (orange.targets[..., 0] - orange.features[..., -1]) ** 2
    assert float(error[orange.test].mean()) == pytest.approx(0.044, abs=5e-4)


@pytest.mark.parametrize(("name", "sensors", "components"), [("PEMS04", 307, 12), ("PEMS08", 170, 1)])
def test_the_published_roads(name: str, sensors: int, components: int) -> None:
    path = Path(os.environ.get("GOSSAMER_DATA", ".")) / "traffic" / f"{name}_distance.csv"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in GOSSAMER_DATA")
    distance = shortest_paths(read_roads(path, sensors), sensors)
    assert csgraph.connected_components(np.isfinite(distance))[0] == components
    assert np.isfinite(embed_distances(distance)).all()
