"""After a run an agent's folder is enough: a run directory, predictions, new vertices, and agents that serve."""

import json
import signal
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from agents.test_layers import describe
from commands.inside import run as command
from oracles.layers import outputs
from peers.harness import M, deployed, in_threads, over, state_folder
from peers.memory import Hub
from peers.processes import Agents, wait_until
from peers.test_peers_keep_best import RECIPE, simulated
from scipy import sparse

import gossamer
from gossamer.agents.measures import mean_params
from gossamer.errors import GossamerError
from gossamer.gathering import gather_agents
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.local_requests import SERVING_FILE, send_message
from gossamer.peers.prediction import TrainedAgent, ask_neighbours
from gossamer.reporting import write_report
from gossamer.runs.message_counts import count_messages
from gossamer.runs.run import Run, fingerprint_data
from gossamer.runs.trained import read_trained


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Run]:
    """Folders of agents that have finished, and the same run in a simulation."""
    deployment, settings = deployed(**RECIPE, steps=20, standardise=True)
    folder = tmp_path_factory.mktemp("trained")
    folders = write_local_shards(folder, deployment, settings, fingerprint=fingerprint_data(deployment.graph))
    assert in_threads(folders, run=over(Hub())) == []
    return folders, simulated(deployment, settings)


def test_an_agents_folder_is_a_run_directory(trained: tuple[list[Path], Run]) -> None:
    folders, expected = trained
    record = next(one for one in expected.history if one["step"] == expected.kept.step)
    means = mean_params(expected.kept.params)
    for k, folder in enumerate(folders):
        content = json.loads((state_folder(folder) / "run.json").read_text())
        assert (content["agent"], content["complete"], content["step"]) == (k, True, expected.host.step)
        assert content["summary"]["distributed"]["test"]["accuracy"] == record["test"]["accuracy"]
        assert content["summary"]["stationarity"] == pytest.approx(record["stationarity"], rel=1e-6)
        for given in (folder, state_folder(folder)):
            found = read_trained(given)
            for name, part in found.select().items():
                torch.testing.assert_close(part, means[name][0], rtol=0, atol=1e-10)
            for name, part in found.select(k).items():
                torch.testing.assert_close(part, expected.kept.params[name][k], rtol=0, atol=1e-10)
        with pytest.raises(GossamerError, match=f"holds the weights of agent {k}, not of agent {(k + 1) % M}"):
            found.select((k + 1) % M)


def test_an_agent_predicts_its_vertices_alone(trained: tuple[list[Path], Run], tmp_path: Path) -> None:
    folders, expected = trained
    outputs = expected.predict()
    for k, folder in enumerate(folders):
        own = np.flatnonzero(expected.deployment.assignment == k)
        found = TrainedAgent(folder).predict()
        assert np.array_equal(found.vertices, own)
        torch.testing.assert_close(found.outputs, outputs[own], rtol=0, atol=1e-10)
        assert ask_neighbours(state_folder(folder), 1.0) is None
    done = command("predict", str(folders[1]), "--out", "found.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Agent 1 predicts alone, from the rows that its neighbours sent at the end of the run" in done.stdout
    first = (tmp_path / "found.csv").read_text().splitlines()[0]
    assert first == "vertex,agent,class,probability,probability_0,probability_1,probability_2"
    assert len((tmp_path / "found.csv").read_text().splitlines()) == 1 + (expected.deployment.assignment == 1).sum()
    assert stat.S_IMODE((tmp_path / "found.csv").stat().st_mode) == 0o600
    (state_folder(folders[1]) / "rows.safetensors").rename(tmp_path / "rows")
    done = command("predict", str(folders[1]), cwd=tmp_path)
    (tmp_path / "rows").rename(state_folder(folders[1]) / "rows.safetensors")
    assert (done.returncode, "holds no rows of neighbours to predict from" in done.stderr) == (2, True)


def new_vertices(agent: int, owner: Any, features: int) -> dict[str, Any]:
    """Two new vertices, joined to each other and to some of an agent's own."""
    own = np.flatnonzero(owner == agent)
    edges = np.array([[1000, own[0]], [own[3], 1000], [1000, 1001], [1001, own[0]]])
    return {
        "vertices": np.array([1001, 1000]),
        "features": np.random.default_rng(0).standard_normal((2, features)),
        "edges": edges,
        "weights": np.array([1.0, 2.0, 1.0, 0.5]),
    }


@pytest.mark.parametrize("agent", [0, 2])
def test_new_vertices_of_an_agent_look_at_the_graph(
    trained: tuple[list[Path], Run], tmp_path: Path, agent: int
) -> None:
    """As one network over D' = [D 0; R S] computes them, of which R and S have the new degrees and the old ones."""
    folders, expected = trained
    deployment = expected.deployment
    given = new_vertices(agent, deployment.assignment, deployment.graph.num_features)
    np.savez(tmp_path / "new.npz", **given)
    found = TrainedAgent(folders[agent]).predict(data=tmp_path / "new.npz")
    assert found.vertices.tolist() == [1001, 1000]
    n = deployment.graph.num_vertices
    place = {1001: n, 1000: n + 1}
    A = sparse.lil_array((n + 2, n + 2))
    for (i, j), weight in zip(given["edges"].tolist(), given["weights"], strict=True):
        i, j = place.get(i, i), place.get(j, j)
        A[i, j] = A[j, i] = weight
    degree = np.concatenate([np.asarray(deployment.graph.adjacency.sum(1)).ravel(), A.sum(1)[n:]]) + 1
    looped = (A + sparse.eye_array(n + 2)).toarray()
    D = np.zeros((n + 2, n + 2))
    D[:n, :n] = deployment.shift.toarray()
    D[n:] = (looped / np.sqrt(np.outer(degree, degree)))[n:]
    assert deployment.transform is not None
    features = np.concatenate(
        [deployment.graph.features, deployment.transform.apply_to_features(given["features"], "float64")]
    )
    x = torch.from_numpy(np.asarray(features))
    owner = torch.from_numpy(np.concatenate([deployment.assignment, [agent, agent]]))
    kept = expected.kept.params
    for layer in range(2):  # every vertex with its own agent's weights
        x = torch.einsum("ni,nio->no", x, kept[f"layer.{layer}.weight"][owner])
        x = torch.from_numpy(D) @ x + kept[f"layer.{layer}.bias"][owner]
        x = x.relu() if layer == 0 else x
    torch.testing.assert_close(found.outputs, x[n:], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "layers",
    [
        {"layers": "gat/gat:residual=true/gat", "heads": 2, "norm": "layer"},
        {"layers": "gated/gatv2:heads=4/sage:aggregate=max", "jump": "cat"},
        {"layers": "sage", "hidden": "8x2", "normalise": True},
        {"layers": "gin", "learn_epsilon": True},
        {"layers": "appnp", "order": 3},
    ],
    ids=lambda of: of["layers"].replace("/", ", "),
)
def test_new_vertices_have_any_layers(tmp_path: Path, layers: dict[str, Any]) -> None:
    """As the reference of the whole graph computes them, in which edges lead from old vertices to new ones alone."""
    deployment, settings = deployed(**RECIPE, steps=2, **layers)
    folders = write_local_shards(tmp_path, deployment, settings, fingerprint=fingerprint_data(deployment.graph))
    assert in_threads(folders, run=over(Hub())) == []
    agent, n = 1, deployment.graph.num_vertices
    given = new_vertices(agent, deployment.assignment, deployment.graph.num_features)
    np.savez(tmp_path / "new.npz", **given)
    found = TrainedAgent(folders[agent]).predict(data=tmp_path / "new.npz")
    adjacency = np.zeros((n + 2, n + 2))
    adjacency[:n, :n] = deployment.graph.adjacency.toarray()
    place = {1001: n, 1000: n + 1}
    for (i, j), weight in zip(given["edges"].tolist(), given["weights"], strict=True):
        for target, source in ((place.get(i, i), place.get(j, j)), (place.get(j, j), place.get(i, i))):
            if target >= n:
                adjacency[target, source] = weight
    assert not sparse.issparse(deployment.graph.features)
    problem = replace(
        make_case().problem,
        X=torch.from_numpy(np.concatenate([deployment.graph.features, given["features"]])),
        owner=torch.from_numpy(np.concatenate([deployment.assignment, [agent, agent]])),
    )
    kept = simulated(deployment, settings).kept.params
    wanted = outputs(problem, torch.from_numpy(adjacency), describe(deployment.network), kept, None)
    torch.testing.assert_close(found.outputs, wanted[n:], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros((2, 3))}, r"must have features \[\d+\] as the run's, got \[3\]"),
        ({"features": np.zeros((1, 8))}, "one row of features for each of 2 vertices, got 1"),
        ({"vertices": np.array([1000, 1000])}, "must have different numbers"),
        ({"edges": np.array([[1000, 777]]), "weights": np.ones(1)}, "vertex 777, which is neither new nor"),
    ],
)
def test_new_vertices_that_do_not_fit_are_told(
    trained: tuple[list[Path], Run], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folders, expected = trained
    given = new_vertices(0, expected.deployment.assignment, expected.deployment.graph.num_features) | changes
    np.savez(tmp_path / "new.npz", **given)
    with pytest.raises(GossamerError, match=message):
        TrainedAgent(folders[0]).predict(data=tmp_path / "new.npz")
    own = np.flatnonzero(expected.deployment.assignment == 0)[0]
    np.savez(tmp_path / "new.npz", **(given | {"vertices": np.array([own, 1000])}))
    with pytest.raises(GossamerError, match=r"is this agent's already|different numbers|for each of 2"):
        TrainedAgent(folders[0]).predict(data=tmp_path / "new.npz")


def test_new_vertices_come_in_tables_too(trained: tuple[list[Path], Run], tmp_path: Path) -> None:
    folders, expected = trained
    given = new_vertices(0, expected.deployment.assignment, expected.deployment.graph.num_features)
    np.savez(tmp_path / "new.npz", **given)
    (tmp_path / "tables").mkdir()
    columns = ",".join(f"x{c}" for c in range(given["features"].shape[1]))
    rows = [f"{v},{','.join(map(repr, x.tolist()))}" for v, x in zip(given["vertices"], given["features"], strict=True)]
    (tmp_path / "tables" / "features.csv").write_text("\n".join([f"vertex,{columns}", *rows]) + "\n")
    pairs = zip(given["edges"].tolist(), given["weights"].tolist(), strict=True)
    lines = [f"{i},{j},{weight}" for (i, j), weight in pairs]
    (tmp_path / "tables" / "edges.csv").write_text("\n".join(["source,target,weight", *lines]) + "\n")
    agent = TrainedAgent(folders[0])
    torch.testing.assert_close(
        agent.predict(data=tmp_path / "tables").outputs, agent.predict(data=tmp_path / "new.npz").outputs
    )


def test_folders_at_hand_join_into_one_run(trained: tuple[list[Path], Run], tmp_path: Path) -> None:
    folders, expected = trained
    result = gather_agents([*reversed(folders)], tmp_path / "whole")
    found = read_trained(tmp_path / "whole")
    for name, part in expected.kept.params.items():
        torch.testing.assert_close(found.params[name], part, rtol=0, atol=1e-10)
    assert result.summary["messages"]["links"] == count_messages(expected.deployment, expected.settings)["links"]
    for one, other in zip(result.run.history, expected.history, strict=True):
        assert one["step"] == other["step"]
        assert one["test"]["accuracy"] == other["test"]["accuracy"]
        assert one["disagreement"] == pytest.approx(other["disagreement"], rel=1e-8, abs=1e-12)
        assert one["stationarity"] == pytest.approx(other["stationarity"], rel=1e-6, abs=1e-14)
    torch.testing.assert_close(result.run.predict(), expected.predict(), rtol=0, atol=1e-10)
    assert (tmp_path / "whole" / "curves.png").is_file()
    page = write_report(tmp_path / "whole").path.read_text()  # its data set was in memory
    assert "a run of gossamer train, cluster or gather" in page  # with public randomness they leave the same
    assert "Agents&#x27; scores and labels are missing" in page
    again = gossamer.train(
        replace(expected.deployment.graph, name="blocks"), agents=M, topology="ring", steps=0, baselines=False,
        hidden=8, dtype="float64", initial=str(tmp_path / "whole"),
    )  # fmt: skip
    assert again.run.deployment.initial is not None
    for name, part in found.select().items():
        torch.testing.assert_close(again.run.host.params[name][0], part)
    with pytest.raises(GossamerError, match="agent 1, 3 is missing"):
        gather_agents([folders[0], folders[2]], tmp_path / "half")
    with pytest.raises(GossamerError, match="agent 2 is given twice"):
        gather_agents([*folders, folders[2]], tmp_path / "twice")
    assert not (tmp_path / "half").exists()


def test_the_status_of_agents_is_read_from_their_folders(trained: tuple[list[Path], Run], tmp_path: Path) -> None:
    folders, _ = trained
    fresh = write_local_shards(tmp_path / "fresh", *deployed())
    done = command("status", *map(str, [folders[0], fresh[1]]), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    finished, waiting = map(json.loads, done.stdout.splitlines())
    assert (finished["state"], finished["step"], finished["steps"]) == ("finished", 20, 20)
    assert finished["score"] is not None
    assert finished["checkpoint_age"] is not None
    assert (waiting["state"], waiting["agent"], waiting["step"]) == ("not started", 1, None)
    done = command("status", *map(str, [folders[0], fresh[1]]), cwd=tmp_path)
    assert "20 of 20" in done.stdout
    done = command("status", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, "is not a shard" in done.stderr) == (2, True)
    done = command("predict", str(fresh[1]), cwd=tmp_path)
    assert (done.returncode, "has not finished its run" in done.stderr) == (2, True)
    done = command("predict", str(tmp_path / "fresh"), cwd=tmp_path)
    assert (done.returncode, "it holds folders of agents: give one of them" in done.stderr) == (2, True)


def test_agents_that_serve_answer_together_also_after_one_was_killed(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=10)
    folders = write_local_shards(tmp_path, deployment, settings)
    states = [state_folder(folder) for folder in folders]
    expected = simulated(deployment, settings).predict()

    def ask(agent: int) -> None:
        answer = ask_neighbours(states[agent], 60.0)
        assert answer is not None
        own = np.flatnonzero(deployment.assignment == agent)
        found = TrainedAgent(folders[agent]).predict(answer.rows)
        torch.testing.assert_close(found.outputs, expected[own], rtol=0, atol=1e-10)

    with Agents(folders, serve=True) as agents:
        agents.start_all()
        wait_until(lambda: all((state / SERVING_FILE).is_file() for state in states), "all agents serve")
        for agent in (0, 1, 0):
            ask(agent)
        agents.signal(2, signal.SIGKILL)
        agents.wait_killed(2)
        with pytest.raises(GossamerError, match="agent 2 does not answer; start it with gossamer peer --serve"):
            ask_neighbours(states[1], 0.5)
        waits = threading.Thread(target=ask, args=(1,))  # until agent 2 is back
        waits.start()
        agents.start(2)
        waits.join(60)
        assert not waits.is_alive()
        with socket.socket(socket.AF_UNIX) as wrong:  # what no command asks ends nothing
            wrong.connect(json.loads((states[0] / SERVING_FILE).read_text())["socket"])
            send_message(wrong, {"give_up": "soon"})
        ask(2)
        ask(0)


def test_python_predicts_at_an_agent_too(trained: tuple[list[Path], Run]) -> None:
    folders, expected = trained
    own = np.flatnonzero(expected.deployment.assignment == 3)
    torch.testing.assert_close(gossamer.predict(folders[3]), expected.predict()[own], rtol=0, atol=1e-10)


def test_names_of_vertices_are_those_of_the_data_set(tmp_path: Path) -> None:
    deployment, settings = deployed(steps=2)
    named = tuple(f"p{v}" for v in range(deployment.graph.num_vertices))
    (topology,) = deployment.topologies
    deployment = replace(deployment, topologies=(replace(topology, graph=replace(deployment.graph, names=named)),))
    folders = write_local_shards(tmp_path / "shards", deployment, settings)
    assert in_threads(folders, run=over(Hub())) == []
    own = np.flatnonzero(deployment.assignment == 0)
    agent = TrainedAgent(folders[0])
    assert agent.predict().names == tuple(f"p{v}" for v in own)
    (tmp_path / "new").mkdir()
    columns = ",".join(f"x{c}" for c in range(deployment.graph.num_features))
    numbers = ",".join(["0.5"] * deployment.graph.num_features)
    (tmp_path / "new" / "features.csv").write_text(f"vertex,{columns}\nnobody,{numbers}\n")
    (tmp_path / "new" / "edges.csv").write_text(f"source,target\nnobody,p{own[1]}\n")
    assert agent.predict(data=tmp_path / "new").names == ("nobody",)
    (tmp_path / "new" / "features.csv").write_text(f"vertex,{columns}\np{own[2]},{numbers}\n")
    with pytest.raises(GossamerError, match="is this agent's already"):
        agent.predict(data=tmp_path / "new")
    assert gather_agents(folders, tmp_path / "whole").run.deployment.graph.names == named
