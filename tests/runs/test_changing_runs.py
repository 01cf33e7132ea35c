"""Runs with links that change: through the settings, to files and back, and where they are refused."""

import html
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from typer.testing import CliRunner

import gossamer
from gossamer.agents.links import Link
from gossamer.agents.plan import message_rows
from gossamer.cli import app
from gossamer.data import DataGraph
from gossamer.engines.cluster.rank_shards import cut_for_ranks
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.shards.site_files import read_combination
from gossamer.report.terminal import describe_rows
from gossamer.runs.connecting import connect
from gossamer.runs.deployment import make_deployment
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.tensors import read_tensors
from gossamer.topology import ring

STEPS = 7
OPTIONS: dict[str, Any] = {
    "agents": 4,
    "hidden": 5,
    "steps": STEPS,
    "evaluate_every": 3,
    "checkpoint_every": 2,
    "baselines": False,
    "dtype": "float64",
    "seed": 3,
}
PARTNERS = ["one-peer", "matchings"]
FORMS = ["failing:0.6", "failing:0.4,ring", "switching"]


@pytest.fixture
def graph() -> DataGraph:
    return make_case().graph


def fill(form: str, folder: Path) -> str:
    """The form with a file of links by step."""
    if form != "switching":
        return form
    path = folder / "links.csv"
    path.write_text("step,agent,neighbour\n0,0,1\n0,2,3\n1,1,2\n1,0,3\n2,0,2\n2,1,3\n2,0,1\n")
    return f"switching:{path}"


@pytest.mark.parametrize(
    ("form", "options"),
    [
        *((form, {}) for form in PARTNERS),
        *((form, {"missing": how, "max_age": 3}) for form in FORMS for how in ("relay", "last", "drop")),
    ],
)
def test_a_resumed_run_has_the_same_bits(graph: DataGraph, tmp_path: Path, form: str, options: dict[str, Any]) -> None:
    options = {**OPTIONS, "topology": fill(form, tmp_path), **options}
    whole = gossamer.train(graph, **options)
    calls = iter([False] * 4)
    begun = gossamer.train(graph, out=tmp_path / "run", should_stop=lambda: next(calls, True), **options)
    assert begun.run.host.step == 4
    resumed = gossamer.resume(tmp_path / "run", graph=graph)
    for name, part in whole.run.host.params.items():
        assert torch.equal(resumed.run.host.params[name], part)
    for name, part in whole.run.host.state.items():
        assert torch.equal(resumed.run.host.state[name], part), name
    assert resumed.run.history == whole.run.history
    rows = [record["rows"] for record in whole.run.history if "rows" in record]
    assert len(rows) == (0 if form in PARTNERS else len(whole.run.history))
    certificate = json.loads((tmp_path / "run" / "topology.json").read_text())
    assert 0 <= certificate["sequence"]["contraction"] < 1
    assert torch.equal(gossamer.predict(tmp_path / "run", graph=graph), whole.predict())


def test_a_file_of_other_links_is_refused(graph: DataGraph, tmp_path: Path) -> None:
    form = fill("switching", tmp_path)
    gossamer.train(graph, out=tmp_path / "run", **{**OPTIONS, "topology": form})
    assert read_tensors(tmp_path / "run" / "network.safetensors")["links"].shape == (3, 4, 4)
    content = (tmp_path / "links.csv").read_text()
    (tmp_path / "links.csv").write_text(content.replace("1,1,2\n1,0,3", "1,0,3\n0,1,2"))
    with pytest.raises(GossamerError, match="not those that"):
        gossamer.resume(tmp_path / "run", 9, graph=graph)
    (tmp_path / "links.csv").unlink()
    with pytest.raises(GossamerError, match="does not hold a run"):
        gossamer.resume(tmp_path / "run", 9, graph=graph)


def test_ages_are_reported(graph: DataGraph) -> None:
    options = {**OPTIONS, "topology": "failing:0.6", "missing": "last", "max_age": 2, "steps": 40}
    result = gossamer.train(graph, **options)
    deliveries, history = result.run.host.deliveries, result.run.history
    assert deliveries is not None
    pairs = np.triu(deliveries.shared, 1)
    for before, record in pairwise(history):
        ages = np.concatenate([deliveries.ages(step)[pairs] for step in range(before["step"], record["step"])])
        assert record["rows"]["arrived"] == (ages == 0).mean()
        assert record["rows"]["largest_age"] == max(0, ages.max())
    summary = result.summary["rows"]
    ages = np.concatenate([deliveries.ages(step)[pairs] for step in range(40)])
    assert summary["arrived"] == (ages == 0).mean()
    assert summary["replaced"] == (ages > 0).mean()
    assert summary["mean_age"] == ages[ages > 0].mean()
    assert summary["largest_age"] == 2
    text = describe_rows(summary)
    assert "at most 2" in text
    assert "were dropped" in text


def settings(topology: str, **more: Any) -> Settings:
    return make_settings({**OPTIONS, "topology": topology, **more})


def test_counts_are_means_over_steps(graph: DataGraph) -> None:
    """Counted again by hand from the rows of each pair, with the share of steps in which they arrive."""
    fixed = count_messages(make_deployment(graph, settings("admm")), settings("admm"))
    how = settings("failing:0.5", missing="drop", steps=40)
    deployment = make_deployment(graph, how)
    found = count_messages(deployment, how)
    deliveries = deployment.deliveries
    assert deliveries is not None
    up = np.mean([deliveries.sequence.up(step) for step in range(40)], axis=0)
    for one, whole in zip(found["links"], fixed["links"], strict=True):
        share = up[one["sender"], one["receiver"]]
        for name in ("forward_rows", "backward_bytes", "consensus_bytes"):
            assert one[name] == round(whole[name] * share)
    assert 0.3 < found["forward"]["bytes"] / fixed["forward"]["bytes"] < 0.7
    assert found["evaluation"] == fixed["evaluation"]


def test_relays_count_every_link_that_they_cross(graph: DataGraph, tmp_path: Path) -> None:
    """A ring of 4 whose link 0-3 is down in every second step: its rows take 3 links then."""
    (tmp_path / "links.csv").write_text(
        "step,agent,neighbour\n" + "".join(f"{t},{k},{k + 1}\n" for t in (0, 1) for k in range(3)) + "0,3,0\n"
    )
    how = settings(f"switching:{tmp_path / 'links.csv'}")
    deployment = make_deployment(graph, how)
    found, closed_ring = count_messages(deployment, how), settings("ring")
    whole = make_deployment(graph, closed_ring)
    rounds = message_rows(whole.shift, whole.network.gathers, whole.graph.labelled, whole.assignment)
    direct = sum((Counter(one) for layer in rounds for one in layer), Counter[Link]())
    assert len(direct) == 12
    by_step = [sum(count * _hops(*link, closed) for link, count in direct.items()) for closed in (True, False)]
    assert found["forward"]["rows"] == round(sum(by_step) / 2)
    assert found["backward"] == found["forward"]


def _hops(k: int, z: int, closed: bool) -> int:
    """Links of a shortest path of the ring, or of the line."""
    apart = abs(k - z)
    return min(apart, 4 - apart) if closed else apart


@pytest.mark.parametrize("form", ["one-peer", "matchings"])
def test_partners_send_to_one_agent_each(graph: DataGraph, form: str) -> None:
    how = settings(form)
    found = count_messages(make_deployment(graph, how), how)
    whole = count_messages(make_deployment(graph, settings("needed")), settings("needed"))
    assert found["consensus"]["rows"] == 2 * 4  # weights and trackers of 4 agents
    assert found["forward"] == whole["forward"]


def test_peers_and_ranks_refuse_links_that_change(graph: DataGraph, tmp_path: Path) -> None:
    how = settings("failing:0.5")
    with pytest.raises(GossamerError, match="simulated by gossamer train alone"):
        write_local_shards(tmp_path / "peers", make_deployment(graph, how), how)
    with pytest.raises(GossamerError, match="ranks have links that stay"):
        cut_for_ranks(tmp_path / "ranks", graph, how, 2)


def test_sites_refuse_a_certificate_of_links_that_change(tmp_path: Path) -> None:
    for form, name in (("ring", "fixed"), ("failing:0.5,ring", "failing")):
        made = connect(np.where(ring(4), 3, 0), settings(form)).to_dict(10)
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
    assert read_combination(tmp_path / "fixed.json", 4).shape == (4, 4)
    with pytest.raises(GossamerError, match="change from step to step"):
        read_combination(tmp_path / "failing.json", 4)


def test_a_sequence_of_given_matrices_is_another(graph: DataGraph) -> None:
    C = np.full((2, 4, 4), 0.25)
    with pytest.raises(GossamerError, match="makes a sequence of its own"):
        start_run(graph, settings("failing:0.5"), combination=C)


@pytest.mark.parametrize(
    ("form", "expected"),
    [("one-peer", "period 2: |product of C^t - 11^T/m|"), ("failing:0.5", "rho(E[C^T C] - 11^T/m)")],
)
def test_the_command_and_its_report_say_how_links_contract(tmp_path: Path, form: str, expected: str) -> None:
    options = ["--agents", "4", "--steps", "2", "--no-baselines", "--topology", form, "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, ["train", "digits", *options])
    assert done.exit_code == 0, done.output
    assert expected in " ".join(done.output.split())
    made = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert made.exit_code == 0, made.output
    assert expected.split(" - ")[0] in html.unescape((tmp_path / "run" / "report.html").read_text())
    certified = ["topology", "--agents", "4", "--topology", form, "--out", str(tmp_path / "topology")]
    shown = CliRunner().invoke(app, certified)
    assert shown.exit_code == 0, shown.output
    assert expected.split(":")[0] in shown.output
