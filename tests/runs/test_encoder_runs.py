"""Runs with an encoder or a privacy budget: what is sent in each stage, what is stored, and that it can go on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import watched

import gossamer
from gossamer.agents import Outbox, Phase, training_step
from gossamer.data import DataGraph
from gossamer.engines.simulation import run_together, start_run
from gossamer.errors import GossamerError
from gossamer.experiments.theory import draw_block_graph
from gossamer.runs.handover import follow_stage, hand_over, soften, train_stages
from gossamer.runs.hosts import build_host, cut_share
from gossamer.runs.observers import Observer
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.tensors import read_tensors
from gossamer.runs.training import baseline_settings, run_training

pytestmark = pytest.mark.filterwarnings("ignore:.*training vertices are few")

PRIVATE = "node:epsilon=8,delta=1e-5"
SMALL: dict[str, Any] = {
    "agents": 4,
    "topology": "ring",
    "steps": 12,
    "encoder_steps": 9,
    "hidden": 8,
    "dtype": "float64",
    "evaluate_every": 4,
    "checkpoint_every": 5,
    "baselines": False,
}


@pytest.fixture(scope="module")
def graph() -> DataGraph:
    return draw_block_graph()


def started(graph: DataGraph, **options: Any) -> tuple[Run, Settings]:
    run = start_run(graph, make_settings({**SMALL, **options}))
    return run, run.whole_settings


def observe(name: str, steps: int) -> Observer:
    return Observer()


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ({"encoder": 3}, ["teacher", "encoder"]),
        ({"encoder": 3, "layers": "chebyshev", "order": 2, "boundary_bits": 8}, ["teacher", "encoder"]),
        ({"privacy": PRIVATE}, ["encoder"]),
        ({"privacy": "edge:epsilon=2,delta=1e-5,hops=2"}, ["encoder"]),
    ],
    ids=str,
)
def test_before_the_graph_network_no_row_crosses_a_link(
    graph: DataGraph, options: dict[str, Any], stages: list[str]
) -> None:
    run, settings = started(graph, **options)
    seen = []
    while run.stage is not None:
        seen.append(run.stage.name)
        sent: list[Outbox] = []
        hosts = [build_host(run.deployment, settings, [k]) for k in range(4)]
        hosts = [host for host, _ in run_together([watched(training_step(host), sent.append) for host in hosts])]
        assert any(outbox.messages for outbox in sent)
        assert {outbox.phase for outbox in sent if outbox.messages} == {Phase.CONSENSUS}
        handed: list[Outbox] = []
        shares = [cut_share(run.deployment, settings, [k]) for k in range(4)]
        for k, host in enumerate(hosts):
            finish = hand_over(run.stage.name, host, shares[k], settings, None)
            hosts_generator = watched(finish, handed.append)
            if settings.privacy_spec is None:
                run_together([hosts_generator])
        if settings.privacy_spec is None:
            assert not any(outbox.messages for outbox in handed)
        run_training(run)
        run = follow_stage(run)
    assert seen == stages
    sent = []
    hosts = [build_host(run.deployment, settings, [k]) for k in range(4)]
    run_together([watched(training_step(host), sent.append) for host in hosts])
    rows = [outbox for outbox in sent if outbox.messages and outbox.phase is not Phase.CONSENSUS]
    assert bool(rows) == (settings.privacy_spec is None)  # of a private run none is left


def test_encodings_are_few_numbers_of_eight_bits_that_stay(graph: DataGraph) -> None:
    run, _ = started(graph, encoder=3)
    trained = train_stages(run, observe)
    encodings = trained.deployment.handed
    assert encodings is not None
    assert encodings.shape == (graph.num_vertices, 3)
    assert np.abs(encodings).max() <= 1
    np.testing.assert_allclose(encodings * 127, np.round(encodings * 127), atol=1e-9)
    assert len(np.unique(encodings)) > 20
    encoder = trained.encoder
    assert encoder is not None
    X = torch.from_numpy(np.asarray(trained.deployment.graph.features)).double()
    a = torch.from_numpy(trained.deployment.assignment)
    W, b = encoder["layer.0.weight"][a], encoder["layer.0.bias"][a]
    expected = torch.tanh(torch.einsum("nd,ndr->nr", X, W) + b)
    np.testing.assert_allclose(encodings, torch.round(127 * expected) / 127, atol=1e-9)
    assert trained.host.network.layers[0].inputs == 3
    before = encodings.copy()
    run_training(trained)
    assert np.array_equal(before, encodings)


def test_soft_targets_are_centred_probabilities() -> None:
    logits = torch.tensor([[50.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    soft = soften(logits, "multiclass")
    torch.testing.assert_close(soft.sum(1), torch.zeros(2, dtype=torch.float64))
    assert float(soft[0].square().mean()) == pytest.approx(1.0)
    assert float(soft[1].abs().max()) == 0.0
    assert torch.equal(soften(logits, "regression"), logits)
    assert soften(logits, "multilabel")[0].tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("options", [{"encoder": 3}, {"privacy": PRIVATE}], ids=str)
def test_a_run_directory_goes_on_and_predicts_with_its_encodings(
    graph: DataGraph, tmp_path: Path, options: dict[str, Any]
) -> None:
    given = {**SMALL, **options}
    whole = gossamer.train(graph, out=tmp_path / "whole", **given)
    asked = iter(range(100))
    steps = 2 * 9 + 6 if "encoder" in options else 9 + 6  # stops in the graph network's stage
    part = gossamer.train(graph, out=tmp_path / "part", should_stop=lambda: next(asked) >= steps, **given)
    assert not part.complete
    assert 0 < part.run.host.step < 12
    resumed = gossamer.resume(tmp_path / "part", graph=graph)
    assert resumed.complete
    for name in ("weights", "encodings", "encoder"):
        files = [read_tensors(tmp_path / folder / f"{name}.safetensors") for folder in ("whole", "part")]
        assert all(torch.equal(files[0][key], files[1][key]) for key in files[0])
    found = gossamer.predict(tmp_path / "part", graph=graph)
    torch.testing.assert_close(found, whole.predict(), rtol=0, atol=1e-12)


def test_a_stop_before_the_graph_network_keeps_nothing(graph: DataGraph, tmp_path: Path) -> None:
    asked = iter(range(100))
    with pytest.raises(GossamerError, match="stopped at step 5 of 9 of the teacher, of which nothing is kept"):
        gossamer.train(graph, out=tmp_path / "run", should_stop=lambda: next(asked) >= 5, **{**SMALL, "encoder": 3})
    assert not (tmp_path / "run").exists()


def test_more_steps_than_the_budget_has_are_refused(graph: DataGraph, tmp_path: Path) -> None:
    gossamer.train(graph, out=tmp_path / "run", **{**SMALL, "privacy": PRIVATE})
    with pytest.raises(GossamerError, match="is divided among 12 steps, and 40 would spend more"):
        gossamer.resume(tmp_path / "run", steps=40, graph=graph)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {"targets": np.random.default_rng(0).standard_normal((120, 1)), "num_classes": None},
            {},
            "one class a vertex",
        ),
        ({"sample_weights": np.full(120, 2.0)}, {}, "sample weights"),
        ({}, {"encoder": 3, "privacy": "none", "layers": "mlp"}, "bounds nothing"),
    ],
)
def test_data_and_settings_without_a_proof(
    graph: DataGraph, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(GossamerError, match=message):
        gossamer.train(replace(graph, **changes), **{**SMALL, "privacy": PRIVATE, **options})


def test_references_have_neither_encoder_nor_noise(graph: DataGraph) -> None:
    result = gossamer.train(graph, **{**SMALL, "privacy": PRIVATE, "baselines": True, "steps": 5, "encoder_steps": 4})
    assert {"centralised", "graphless"} <= set(result.summary)
    references = baseline_settings(result.run.settings)
    assert all(
        one.update == "adam" and one.initial_deviation is None and one.steps == 200 for one in references.values()
    )
    losses = [result.summary[name]["train"]["loss"] for name in ("centralised", "graphless")]
    assert max(losses) < 0.9  # they learn


def test_several_labels_a_vertex_have_an_encoder(graph: DataGraph) -> None:
    labels = np.random.default_rng(0).random((graph.num_vertices, 3)) < 0.4
    several = replace(graph, targets=labels, num_classes=3)
    result = gossamer.train(several, **{**SMALL, "encoder": 2})
    assert result.run.deployment.handed is not None
    assert result.summary["distributed"]["test"]["loss"] < 1.0
