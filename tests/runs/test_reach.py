"""Every setting reaches the arithmetic, and what a run reports is what the whole graph says."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case, watched
from oracles.whole_graph import gradients, outputs

import gossamer
from gossamer import topology
from gossamer.agents import Outbox, training_step
from gossamer.agents.consensus import HostedCombination
from gossamer.agents.consensus.plain import make_mixing
from gossamer.agents.exchange import join_parts
from gossamer.api import resume, train
from gossamer.engines.simulation import run, run_together, start_run
from gossamer.errors import GossamerError
from gossamer.model import make_shift
from gossamer.report.predictions import write_predictions
from gossamer.runs import directory
from gossamer.runs.deployment import make_deployment
from gossamer.runs.hosts import build_host
from gossamer.runs.message_counts import count_messages, total_bytes
from gossamer.runs.observers import Observer
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.training import baseline_settings, run_training

BASE = {"preset": "paper", "dataset": "case", "agents": 4, "hidden": 5, "topology": "complete",
        "initial_deviation": 0.5, "seed": 3}  # fmt: skip


def test_every_training_setting_reaches_the_host() -> None:
    options = {"update": "momentum", "momentum": 0.5, "step_size": 0.25, "step_decay": 0.1, "weight_decay": 0.2,
               "decay_layers": "first", "consensus_every": 3, "mix_first": True, "same_initial": True,
               "dtype": "float64", "activation": "elu", "dropout": 0.3, "input_dropout": 0.1, "bias": True,
               "order": 2, "layers": "gcn"}  # fmt: skip
    case = make_case(n=40)
    settings = make_settings({**BASE, **options})
    host = build_host(make_deployment(case.graph, settings, assignment=case.owner), settings)
    how = host.training
    assert (how.step_size, how.step_decay, how.weight_decay, how.consensus_every, how.seed) == (0.25, 0.1, 0.2, 3, 3)
    assert how.mix_first
    assert how.decay_layers == "first"
    state = {"velocity.w": torch.ones(1)}
    how.rule.update({"w": torch.zeros(1)}, state, {"w": torch.zeros(1)}, 1.0, 0)
    assert float(state["velocity.w"]) == 0.5
    layers: Any = host.network.layers
    first, second = layers
    assert (first.activation, first.dropout, second.dropout, first.bias) == ("elu", 0.1, 0.3, True)
    assert first.gather.powers == (0, 1, 2)
    weight = host.params["layer.0.weight"]
    assert weight.dtype == torch.float64
    assert torch.equal(weight[0], weight[3])
    assert 0.3 < weight.std() < 0.7
    assert (host.params["layer.1.weight"][0, 0, :3] - weight[0, 0, :3, :3]).abs().max() > 1e-3


@pytest.mark.parametrize("shift", ["normalized", "random-walk", "laplacian", "scaled-laplacian", "identity"])
def test_the_shift_and_the_mixing_reach_the_deployment(shift: str) -> None:
    case = make_case(n=40)
    settings = make_settings({**BASE, "shift": shift, "mixing": "uniform", "topology": "line"})
    found = make_deployment(case.graph, settings, assignment=case.owner)
    np.testing.assert_array_equal(found.shift.toarray(), make_shift(found.graph.adjacency, shift).toarray())
    np.testing.assert_array_equal(found.combination, topology.max_degree_weights(topology.line(4)))


def test_predictions_equal_the_whole_graph_by_vertex_name(tmp_path: Path) -> None:
    case = make_case(activation="relu")
    names = tuple(f"v{i}" for i in reversed(range(24)))
    graph = replace(case.graph, names=names, class_names=("a", "b", "c"))
    settings = make_settings({**BASE, "agents": M, "hidden": 5, "dtype": "float64"})
    state = start_run(graph, settings, assignment=case.owner)
    expected = outputs(case.problem, case.weights(state.host), None, step=None)
    torch.testing.assert_close(state.predict(), expected, rtol=1e-10, atol=1e-12)
    write_predictions(tmp_path / "p.csv", graph, case.owner, state.predict())
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["vertex"] for row in rows] == list(names)
    assert [row["class"] for row in rows] == ["abc"[c] for c in expected.argmax(1)]
    assert [int(row["agent"]) for row in rows] == case.owner.tolist()
    assert len({row["class"] for row in rows}) > 1


def test_predicted_values_keep_their_time_and_order(tmp_path: Path) -> None:
    case = make_case(batch=3)
    values = torch.arange(24 * 3 * 3, dtype=torch.float64).view(24, 3, 3)
    write_predictions(tmp_path / "p.csv", case.graph, case.owner, values)
    rows = list(csv.reader((tmp_path / "p.csv").read_text().splitlines()))
    assert rows[0] == ["vertex", "agent", "time", "value_0", "value_1", "value_2"]
    assert rows[5] == ["1", str(case.owner[1]), "1", "12.0", "13.0", "14.0"]


def test_the_recorded_stationarity_is_that_of_the_mean_weights_without_dropout() -> None:
    case = make_case(dropout=0.5, activation="relu")
    settings = make_settings({**BASE, "agents": M, "dtype": "float64", "steps": 0, "weight_decay": 0.7})
    state = run_training(start_run(case.graph, settings, assignment=case.owner))
    centre = [w.mean(0, keepdim=True).expand_as(w).clone() for w in case.weights(state.host)]
    central = [g.sum(0) + 0.7 * w[0] for g, w in zip(gradients(case.problem, centre, step=None), centre, strict=True)]
    expected = sum(float(g.square().sum()) for g in central) / M
    assert state.history[0]["stationarity"] == pytest.approx(expected, rel=1e-10)


def test_the_references_are_one_agent_with_and_without_the_graph() -> None:
    found = baseline_settings(make_settings({**BASE, "layers": "chebyshev", "order": 2, "seed": 5}))
    assert {name: (s.agents, s.layers, s.seed) for name, s in found.items()} == {
        "centralised": (1, "chebyshev", 5), "graphless": (1, "mlp", 5)}  # fmt: skip


def test_many_agents_mix_by_the_sparse_product() -> None:
    m = 50
    C = topology.metropolis_weights(topology.ring(m))
    mixing = make_mixing(HostedCombination(C, range(m)), torch.float64)
    assert not isinstance(mixing.local_block, torch.Tensor)
    psi = {"w": torch.randn(m, 3, 2, dtype=torch.float64)}
    mixed = run(mixing(psi, {"w": torch.empty(m, 3, 2, dtype=torch.float64)}, {}, 0, 0))
    torch.testing.assert_close(mixed["w"], torch.einsum("kz,zio->kio", torch.tensor(C), psi["w"]))


@pytest.mark.parametrize("batch", [0, 2])
def test_bytes_of_a_batch_are_those_of_its_training_time_steps(batch: int) -> None:
    case = make_case(batch=8, n=40)
    settings = make_settings({**BASE, "layers": "gcn", "batch": batch})
    deployment = make_deployment(case.graph, settings, assignment=case.owner)
    sent: list[int] = []

    def note(outbox: Outbox) -> None:
        sent.extend(
            t.numel() * t.element_size() for t in map(join_parts, outbox.messages.values()) if outbox.phase == "forward"
        )

    run_together([watched(training_step(build_host(deployment, settings, [k])), note) for k in range(4)])
    counted = count_messages(deployment, settings)
    assert counted["forward"]["bytes"] == sum(sent) > 0
    assert counted["consensus"]["rows"] == 12
    per_step = sum(counted[phase]["bytes"] for phase in ("forward", "backward", "consensus"))
    assert total_bytes(counted, settings, steps=7) == 7 * per_step


def test_a_data_set_beside_a_settings_object_is_the_one_that_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "features.csv").write_text("vertex,f\na,0\nb,1\nc,0\nd,1\n")
    (folder / "edges.csv").write_text("source,target\na,b\nb,c\nc,d\n")
    (folder / "labels.csv").write_text("vertex,label,split\na,x,train\nb,y,train\nc,x,validation\nd,y,test\n")
    result = gossamer.train(folder, Settings(agents=2, steps=1, baselines=False))
    assert result.run.deployment.graph.num_vertices == 4
    assert result.run.settings.dataset == str(folder)


def test_a_killed_resumption_keeps_the_new_number_of_steps_and_references_are_not_trained_twice(
    tmp_path: Path,
) -> None:
    graph = make_case(n=40).graph
    train(graph, out=tmp_path / "run", agents=4, steps=4, topology="complete")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["complete"] is True
    trained: list[str] = []

    def display(name: str, first: int, last: int) -> Observer:
        trained.append(name)
        if name == "distributed" and last == 9:
            raise RuntimeError("killed")
        return Observer()

    resume(tmp_path / "run", display=display, graph=graph)
    assert trained == ["distributed"]
    with pytest.raises(RuntimeError):
        resume(tmp_path / "run", steps=9, display=display, graph=graph)
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (content["settings"]["steps"], content["complete"]) == (9, False)
    assert content["summary"]["steps"] == 4
    again = resume(tmp_path / "run", graph=graph)
    assert again.complete
    assert again.baseline_histories["graphless"][-1]["step"] == 9


def test_a_graph_from_memory_is_asked_for_again(tmp_path: Path) -> None:
    graph = replace(make_case(n=40).graph, name="memory")
    result = train(graph, out=tmp_path / "run", agents=4, steps=3, topology="complete", baselines=False)
    with pytest.raises(GossamerError, match="A graph from memory must be given again"):
        gossamer.predict(tmp_path / "run")
    torch.testing.assert_close(gossamer.predict(tmp_path / "run", graph=graph), result.run.predict(), rtol=0, atol=0)
    with pytest.raises(GossamerError, match="`given` takes assignment, combination and shift, got assigment"):
        train(graph, agents=4, given={"assigment": None})


def test_another_shift_is_refused_on_resumption(tmp_path: Path) -> None:
    case = make_case(n=40)
    train(case.graph, out=tmp_path / "run", agents=4, steps=2, topology="complete", baselines=False,
          given={"shift": case.shift.toarray()})  # fmt: skip
    directory.read_run(tmp_path / "run", case.graph, start_run, shift=case.shift)
    with pytest.raises(GossamerError, match="or the shift operator given with it"):
        directory.read_run(tmp_path / "run", case.graph, start_run, shift=case.shift * 2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", b"{\n", "metrics.jsonl, line 1 is not valid JSON"),
        ("metrics.jsonl", b"{", "metrics.jsonl has no evaluation up to step 2"),  # as if cut off
        ("metrics.jsonl", b"[]\n", "metrics.jsonl, line 1 should hold an object"),
        ("run.json", b'{"format": 1}', "run.json is damaged: it has no settings"),
    ],
)
def test_a_damaged_run_directory_is_reported(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    graph = make_case(n=40).graph
    train(graph, out=tmp_path / "run", agents=4, steps=2, topology="complete", baselines=False)
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(GossamerError, match=message):
        resume(tmp_path / "run", graph=graph)
