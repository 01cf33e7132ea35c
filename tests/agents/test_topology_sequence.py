"""Links that change from step to step: step t has the topology with number t mod the length of the sequence."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case
from agents.test_hosting import GROUPINGS
from agents.test_planning import assert_same
from oracles.whole_graph import gradients
from peers.harness import in_threads, over, weights
from peers.memory import Hub

import gossamer
from gossamer import topology
from gossamer.agents import Host, training_step
from gossamer.agents.consensus import ConsensusMethod, MaskedMethod, parse_method
from gossamer.agents.consensus.plain import PlainMethod
from gossamer.agents.host import draw_initial_params, make_share_host
from gossamer.agents.rules import make_rule
from gossamer.agents.share import make_share, make_whole
from gossamer.agents.sums import plan_tree
from gossamer.agents.training_options import TrainingOptions
from gossamer.engines.simulation import run_together, start_run
from gossamer.errors import GossamerError
from gossamer.model import make_shift
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.process import PeerOptions
from gossamer.peers.program import make_schedule
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.hosts import build_share_host, prepare_cut
from gossamer.runs.message_counts import count_messages
from gossamer.runs.records import PhaseName
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_tensors

LENGTH, STEPS, ETA = 3, 7, 0.05
PHASES: tuple[PhaseName, ...] = ("forward", "backward", "consensus")


def changing(case: Case) -> list[tuple[Any, np.ndarray]]:
    """Topologies of which two lack a link, and the data edges that it would carry."""
    found = []
    for missing in ((), (0, 1), (1, 2)):
        links = topology.complete(M)
        if missing:
            links[missing], links[missing[::-1]] = False, False
        carried = topology.carried_edges(case.graph.edges, case.owner, links)
        shift = make_shift(case.graph.restrict_to(carried).adjacency, "normalized")
        found.append((shift, topology.metropolis_weights(links)))
    return found


def train(case: Case, grouping: list[list[int]], **options: Any) -> list[Host]:
    whole = make_whole(case.graph, changing(case), case.network.gathers, case.owner)
    training = TrainingOptions(make_rule("gd"), ETA, seed=3, **options)
    hosts = []
    for agents in grouping:
        params = draw_initial_params(case.network, agents, 3, 0.5, False, torch.float64)
        hosts.append(make_share_host(make_share(whole, agents), case.network, training, params))
    for _ in range(STEPS):
        hosts = [host for host, _ in run_together([training_step(host) for host in hosts])]
    return hosts


@pytest.mark.parametrize("grouping", GROUPINGS, ids=str)
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("method", [PlainMethod(), MaskedMethod()], ids=["plain", "masked"])
def test_every_step_has_its_own_links_and_weights(
    grouping: list[list[int]], every: int, method: ConsensusMethod
) -> None:
    case = make_case(dropout=0.4)
    w = case.weights(case.host())
    for t in range(STEPS):
        shift, C = changing(case)[t % LENGTH]
        here = replace(case.problem, D=torch.tensor(shift.toarray()))
        w = [part - ETA * M * g for part, g in zip(w, gradients(here, w, None, t), strict=True)]
        if (t + 1) % every == 0:
            w = [torch.einsum("kz,z...->k...", torch.tensor(C), part) for part in w]
    hosts = train(case, grouping, consensus_every=every, consensus=method)
    for index, expected in enumerate(w):
        for host in hosts:
            found = host.params[f"layer.{index}.weight"]
            torch.testing.assert_close(found, expected[list(host.agents)], rtol=0, atol=1e-10)


def test_consensus_with_a_memory_of_its_links_is_refused() -> None:
    with pytest.raises(GossamerError, match="the links change from step to step; take --compress none"):
        train(make_case(), [list(range(M))], consensus=parse_method("choco:bits=8"))


def settings(**options: Any) -> Settings:
    base = {"preset": "paper", "agents": M, "dtype": "float64", "steps": STEPS, "update": "gd", "step_size": ETA}
    run = {"seed": 3, "initial_deviation": 0.5, "evaluate_every": 3, "checkpoint_every": 4, "baselines": False}
    return Settings.model_validate({**base, **run, **options})


def matrices() -> np.ndarray:
    links = [topology.complete(M), topology.ring(M), topology.star(M)]
    return np.stack([topology.metropolis_weights(one) for one in links])


@pytest.mark.parametrize("every", [1, 2])
def test_peers_train_over_links_that_change(tmp_path: Path, every: int) -> None:
    case = make_case(dropout=0.4)
    chosen = settings(consensus_every=every, public_randomness=True)
    simulated = gossamer.train(case.graph, chosen, given={"assignment": case.owner, "combination": matrices()}).run
    folders = write_local_shards(tmp_path, simulated.deployment, chosen)
    whole, tree = prepare_cut(simulated.deployment, chosen), plan_tree(simulated.deployment.links)
    assert tree is not None
    for k, folder in enumerate(folders):
        share = read_shard(folder).share
        assert_same(share, replace(make_share(whole, [k]), tree=tree[k]))
        assert len(make_schedule(build_share_host(share, chosen), chosen, share).topologies) == LENGTH
    assert in_threads(folders, PeerOptions(give_up=20), run=over(Hub())) == []
    for k, folder in enumerate(folders):
        found = weights(folder)
        for name, part in simulated.host.params.items():
            torch.testing.assert_close(found[name][0], part[k], rtol=0, atol=1e-10)


def test_a_run_directory_holds_the_sequence(tmp_path: Path) -> None:
    case = make_case(dropout=0.4)
    given = {"assignment": case.owner, "combination": matrices()}
    whole = gossamer.train(case.graph, settings(), given=given).run
    gossamer.train(case.graph, settings(steps=4), given=given, out=tmp_path / "run")
    resumed = gossamer.resume(tmp_path / "run", STEPS, graph=case.graph).run
    assert read_tensors(tmp_path / "run" / "network.safetensors")["combination"].shape == (LENGTH, M, M)
    for name, part in whole.host.params.items():
        assert torch.equal(resumed.host.params[name], part)


def test_messages_are_counted_in_the_mean_of_the_topologies() -> None:
    case = make_case()
    deployment = start_run(case.graph, settings(), assignment=case.owner, combination=matrices()).deployment
    counts = [count_messages(deployment.at(number), settings()) for number in range(LENGTH)]
    found = count_messages(deployment, settings())
    for phase in PHASES:
        assert found[phase]["bytes"] == round(sum(one[phase]["bytes"] for one in counts) / LENGTH)
    assert len(found["links"]) == M * (M - 1)
