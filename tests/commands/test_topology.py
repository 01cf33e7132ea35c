"""`gossamer topology` as a user runs it: certificates, files, pictures and mistakes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gossamer.cli import app

GROUPS = np.kron(np.eye(2), 3 * np.ones((3, 3)))  # two groups of three agents that share no edge


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    np.savetxt("groups.csv", GROUPS, delimiter=",")


def topology(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["topology", *arguments])


def test_json_is_the_certificate_of_a_deployable_matrix() -> None:
    done = topology("--agents", "8", "--gap", "0.8", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    C = np.array(found["combination"])
    m = 8
    np.testing.assert_array_equal(C, C.T)
    np.testing.assert_allclose(C.sum(1), np.ones(m), atol=1e-14)
    links = [tuple(pair) for pair in found["needed_links"] + found["added_links"]]
    assert links == sorted(set(links), key=links.index)
    assert sorted(links) == [(k, z) for k in range(m) for z in range(k + 1, m) if C[k, z] != 0]
    assert found["missing_links"] == []
    assert min(abs(C[k, z]) for k, z in found["needed_links"]) >= found["floor"] == 1e-3 / m
    radius = abs(np.linalg.eigvals(C - 1 / m)).max()
    assert found["spectral_radius"] == pytest.approx(radius, abs=1e-12)
    assert radius <= 0.2 + 1e-12
    np.testing.assert_allclose(found["spectrum"], np.linalg.eigvalsh(C), atol=1e-12)
    assert found["objective"] == pytest.approx(2 * sum(abs(C[k, z]) for k, z in found["added_links"]))
    assert 0 <= found["lower_bound"] <= found["objective"] <= found["lower_bound"] * (1 + 1e-4) + 1e-6
    assert found["holds"] == {"A1": True, "A2": True, "A3": True}
    assert found["rounds"] == int(np.ceil(np.log(1e-3) / np.log(radius)))
    assert found["parameters"] == 64 * 64 + 64 + 64 * 10 + 10  # weights and biases
    assert found["bytes_per_round"] == 4 * found["parameters"] * 2 * len(links)
    assert json.loads(Path("topologies/digits-1/topology.json").read_text()) == found
    assert Path("topologies/digits-1/topology.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(topology("--agents", "8", "--gap", "0.8", "--json").stdout) == found


def test_the_table_names_every_part_of_the_certificate() -> None:
    done = topology("--shared-edges", "groups.csv", "--gap", "0.3", "--parameters", "1000", "--out", "here")
    assert done.exit_code == 0, done.stderr
    for words in (
        "groups: 6 agents",
        "(A1) doubly stochastic",
        "(A2) spectral radius",
        "(A3) no weight off links",
        "6 that the data needs, 9 added",
        "objective ||C o A||_1",
        "lower bound, proved",
        "floor of needed links",
        "rounds for 1e-3",
        "120,000 for 1,000 parameters",
        "here/topology.png",
    ):
        assert words in done.stdout, words


def test_a_matrix_from_any_kind_of_file_gives_the_same_design() -> None:
    np.save("groups.npy", GROUPS)
    np.savetxt("groups.txt", GROUPS)
    found = [
        json.loads(topology("--shared-edges", name, "--nonnegative", "--json").stdout)
        for name in ("groups.csv", "groups.npy", "groups.txt")
    ]
    assert found[0] == found[1] == found[2]
    assert found[0]["nonnegative"] is True
    assert len(found[0]["added_links"]) > 0


def test_a_family_says_what_it_misses_and_keeps() -> None:
    drop = ("--lost-edges", "drop")
    found = json.loads(topology("--topology", "ring", "--mixing", "fastest", *drop, "--json").stdout)
    assert len(found["needed_links"]) + len(found["added_links"]) == 10
    assert len(found["missing_links"]) > 0
    assert 0 < found["edges_kept"] < 1
    assert (found["edges_relayed"], found["relayed_edges"], found["routes"]) == (0.0, {}, [])
    assert found["lower_bound"] is None
    assert found["gap"] is None
    fewer = json.loads(topology("--topology", "needed", "--keep-links", "0.5", "--seed", "4", *drop, "--json").stdout)
    whole = json.loads(topology("--topology", "needed", "--seed", "4", "--json").stdout)
    assert len(fewer["needed_links"]) == int(len(whole["needed_links"]) / 2 + 0.5)
    assert fewer["edges_kept"] < whole["edges_kept"] == 1.0


def test_relayed_edges_are_shown_by_hops_and_by_link() -> None:
    found = json.loads(topology("--topology", "ring", "--json").stdout)
    dropped = json.loads(topology("--topology", "ring", "--lost-edges", "drop", "--json").stdout)
    assert found["edges_kept"] == 1.0
    assert found["edges_relayed"] == pytest.approx(1 - dropped["edges_kept"])
    assert found["direct_edges"] == dropped["direct_edges"] == sum(edges for *_, edges in dropped["link_load"]) > 0
    assert (
        {len(route) - 1 for route in found["routes"]} == {int(hops) for hops in found["relayed_edges"]} <= {2, 3, 4, 5}
    )
    assert [[route[0], route[-1]] for route in found["routes"]] == found["missing_links"]
    hops = found["direct_edges"] + sum(int(hops) * edges for hops, edges in found["relayed_edges"].items())
    assert sum(edges for *_, edges in found["link_load"]) == hops
    assert [[k, z] for k, z, _ in found["link_load"]] == sorted(found["needed_links"] + found["added_links"])
    shown = topology("--topology", "ring").stdout
    assert all(words in shown for words in ("over a link of their own", "over 2 links", "edges on each link"))
    assert "data edges kept" in topology("--topology", "ring", "--lost-edges", "drop").stdout


def test_edges_of_a_matrix_are_relayed() -> None:
    np.savetxt("path.csv", [[0, 3, 5], [3, 0, 4], [5, 4, 0]], delimiter=",")
    found = json.loads(topology("--shared-edges", "path.csv", "--topology", "line", "--json").stdout)
    assert (found["direct_edges"], found["relayed_edges"], found["routes"]) == (7, {"2": 5}, [[0, 1, 2]])
    assert found["link_load"] == [[0, 1, 8], [1, 2, 9]]
    assert (found["edges_kept"], found["edges_relayed"]) == (None, None)


def test_fastest_weights_without_negative_ones() -> None:
    signed, other = (
        json.loads(topology("--topology", "star", "--mixing", "fastest", *more, "--json").stdout)
        for more in ((), ("--nonnegative",))
    )
    assert np.min(signed["combination"]) < 0 <= np.min(other["combination"])
    assert (signed["nonnegative"], other["nonnegative"]) == (False, True)


def test_a_topology_that_leaves_agents_apart_says_so() -> None:
    done = topology("--shared-edges", "groups.csv", "--topology", "needed", "--json")
    found = json.loads(done.stdout)
    assert found["holds"] == {"A1": True, "A2": False, "A3": True}
    assert found["rounds"] is None
    assert found["components"] == 2


def test_the_sweep_reaches_the_minimally_connected_network() -> None:
    done = topology("--sweep", "--json", "--seed", "1", "--agents", "12")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    radii = [point["radius"] for point in found["points"]]
    assert radii == [round(0.05 * i, 2) for i in range(20)]
    sparsity = [point["sparsity"] for point in found["points"]]
    assert sparsity[0] == 0.0
    assert max(sparsity) == found["limit_sparsity"]
    for point in found["points"]:
        assert point["spectral_radius"] <= point["radius"] + 1e-12
        assert point["objective"] - point["lower_bound"] <= 1e-4 * point["objective"] + 1e-6
        assert (point["sparsity"] == found["limit_sparsity"]) == (point["radius"] >= found["limit_radius"])
    folder = Path("topologies/random-sweep-1")
    with (folder / "sweep.csv").open() as file:
        assert [float(row["sparsity"]) for row in csv.DictReader(file)] == sparsity
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_over_data_and_over_a_matrix() -> None:
    done = topology("--sweep", "--shared-edges", "groups.csv")
    assert done.exit_code == 0, done.stderr
    assert "Needed links alone" in done.stdout
    found = json.loads(topology("--sweep", "--data", "digits", "--agents", "6", "--nonnegative", "--json").stdout)
    assert found["name"] == "digits"
    assert found["agents"] == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gap", "0"], "gap = 0.0: input should be greater than 0"),
        (["--gap", "1.5"], "gap = 1.5: input should be less than or equal to 1"),
        (["--gap", "nan"], "gap = nan: input should be a finite number"),
        (["--agents", "1"], "at least 2 agents"),
        (["--floor", "0.2"], "at most 1/(2m) = 0.05"),
        (["--tolerance", "0"], "between 0 and 1"),
        (["--data", "digits", "--shared-edges", "groups.csv"], "not both"),
        (["--shared-edges", "groups.csv", "--agents", "3"], "is for 6 agents"),
        (["--shared-edges", "groups.csv", "--assignment", "bfs"], "--assignment is for --data"),
        (["--sweep", "--gap", "0.3"], "it takes no --gap"),
        (["--sweep", "--parameters", "3"], "it takes no --parameters"),
        (["--sweep", "--agents", "1"], "at least 2 agents"),
        (["--topology", "ring", "--gap", "0.3"], "--gap is for a designed topology, not for --topology ring"),
        (["--topology", "star", "--floor", "0.1"], "--floor is for a designed topology"),
        (["--gap", "1e-12"], "drowns in rounding"),
        (["--shared-edges", "nowhere.csv"], "cannot read nowhere.csv: No such file"),
        (["--shared-edges", "0 1 0\n1 0 1"], "must be square"),
        (["--shared-edges", "0 1\n0 0"], "symmetric in its support"),
        (["--shared-edges", "0 nan\nnan 0"], "NaN"),
        (["--shared-edges", "0 -1\n-1 0"], "cannot be negative"),
        (["--shared-edges", "3"], "at least 2 agents"),
        (["--shared-edges", "a b\nc d"], "not a matrix of numbers"),
        (["--shared-edges", "0 1\n1"], "not a matrix of numbers"),
        (["--shared-edges", ""], "must be square"),
        (["--out", "taken"], "taken exists and is not an empty folder"),
    ],
)
def test_mistakes_are_told_and_leave_nothing_behind(arguments: list[str], message: str) -> None:
    Path("taken").mkdir()
    Path("taken/file").touch()
    if arguments[0] == "--shared-edges" and arguments[1] not in ("groups.csv", "nowhere.csv"):
        Path("matrix.csv").write_text(arguments[1])
        arguments = ["--shared-edges", "matrix.csv"]
    before = sorted(Path().rglob("*"))
    done = topology(*arguments)
    assert done.exit_code == 2, done.stdout
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert sorted(Path().rglob("*")) == before
