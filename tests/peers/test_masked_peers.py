"""Peers with masked consensus: the simulation's weights, messages that mean nothing alone, no pad twice, no lies."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peers.harness import STEPS, M, check, deployed, in_threads, simulated, state_folder
from peers.memory import Hub
from peers.processes import Agents, wait_until
from peers.test_sites import RUN, shards_of, write_sites
from peers.test_sites import check as check_sites

from gossamer.agents.consensus.masked import list_senders
from gossamer.agents.measures import mean_params
from gossamer.engines.simulation import Simulation
from gossamer.errors import GossamerError
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.keys import read_key
from gossamer.peers.network.sockets import Sockets
from gossamer.peers.process import PeerOptions, run_peer, train_agent
from gossamer.peers.progress import PeerReport
from gossamer.peers.protocol.pads import SessionPads
from gossamer.peers.protocol.signatures import make_keyring
from gossamer.peers.protocol.wire import FRAME, decode, read_payload
from gossamer.peers.sessions import SESSION_LOG, count_repeated_sessions
from gossamer.peers.shards.shard import add_senders, cut_shards, read_shard, write_shard
from gossamer.peers.shards.sites import make_site_shard, read_site_shard
from gossamer.runs.hosts import build_host
from gossamer.runs.message_counts import count_messages
from gossamer.runs.tensors import read_tensors
from gossamer.runs.trained import read_trained
from gossamer.runs.training import stationarity


def over(hub: Hub) -> Any:
    """A peer with its keys, whose messages stay in this process."""

    def run(folder: Path, options: PeerOptions) -> None:
        is_site = (folder / "site.safetensors").exists()
        shard: Any = read_site_shard(folder) if is_site else read_shard(folder)
        own = shard.membership
        keyring = make_keyring(read_key(folder / "key.secret"), own.verify_keys, own.agent)
        train_agent(lambda largest, _: hub.open(own.agent, own.neighbours, largest), folder, shard, options, keyring)

    return run


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "momentum", "measure": "end"},
        {"update": "gd", "topology": "complete", "consensus_every": 3, "measure": "all"},
        {"update": "adam", "step_size": 0.01, "dropout": 0.5, "mix_first": True},
    ],
    ids=str,
)
def test_fifty_steps_of_peers_equal_the_simulation(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(consensus="masked", **changes)
    folders = write_local_shards(tmp_path, deployment, settings)
    assert in_threads(folders, run=over(Hub())) == []
    check(folders, simulated(deployment, settings))
    plain = simulated(deployment, settings.model_copy(update={"consensus": "plain"}))
    check(folders, plain, 1e-9)
    mean = mean_params(plain)
    host = replace(build_host(deployment, settings), params=plain, step=settings.steps)
    for folder in folders:  # what all know of the end is the same, and no sum showed a single agent's weights
        state = state_folder(folder)
        summary = json.loads((state / "run.json").read_text())["summary"]
        assert summary["disagreement"] is None
        if "measure" not in changes:  # with the mean, an agent may find the weights of one that it does not mix with
            assert not (state / "mean.safetensors").exists()
            assert summary["stationarity"] is None
            with pytest.raises(GossamerError, match="does not know the mean of all weights"):
                read_trained(folder).select()
            continue
        for name, part in read_tensors(state / "mean.safetensors").items():
            torch.testing.assert_close(part, mean[name][:1], rtol=0, atol=1e-9)
        assert summary["stationarity"] == pytest.approx(stationarity(host, Simulation()), rel=1e-5)


def test_messages_over_sockets_are_eight_random_bytes_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one agent sends another in consensus has bits as a fair coin, though the weights are small; the bytes are
    those counted, and the weights those of the simulation."""
    deployment, settings = deployed(consensus="masked", update="gd", evaluate_every=1000)
    folders = write_local_shards(tmp_path, deployment, settings)
    run, send, sent = read_shard(folders[0]).membership.run, Sockets.send, list[torch.Tensor]()

    def note(sockets: Sockets, neighbour: int, message: bytes) -> None:
        if message[1] == FRAME:
            header: Any = decode(message, run, int.from_bytes(message[4:8], "little"))
            if header.phase == "consensus":
                sent.append(read_payload(header, message, encrypted=True)[0].clone().reshape(-1))
        send(sockets, neighbour, message)

    monkeypatch.setattr(Sockets, "send", note)
    last: dict[int, PeerReport] = {}
    assert in_threads(folders, PeerOptions(on_report=lambda state: last.update({state["agent"]: state}))) == []
    check(folders, simulated(deployment, settings))
    planned = count_messages(deployment, settings)["consensus"]
    links = [link["sent"] for one in last.values() for link in one["links"].values()]
    assert sum(link.get("consensus", 0) for link in links) == planned["bytes"] * STEPS
    assert planned["bytes"] == 2 * M * 8 * deployment.network.num_parameters  # both ways over the ring's links
    numbers = torch.cat(sent).numpy()
    assert numbers.dtype == np.int64
    ones = np.unpackbits(numbers.view(np.uint8)).reshape(-1, 64).mean(0)
    np.testing.assert_allclose(ones, 0.5, atol=5 * 0.5 / np.sqrt(len(numbers)))


def test_an_agent_with_other_pads_ends_its_neighbours_who_name_all_senders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agent 1 adds pads where it should subtract them: agents 0 and 2 cannot tell it from agent 3."""
    folders = write_local_shards(tmp_path, *deployed(consensus="masked", steps=5))
    draw = SessionPads.__call__

    def lie(pads: SessionPads, sender: int, *what: int) -> torch.Tensor:
        total = draw(pads, sender, *what)
        return -total if sender == 1 else total

    monkeypatch.setattr(SessionPads, "__call__", lie)
    failures = [str(one) for one in in_threads(folders, PeerOptions(give_up=5), run=over(Hub()))]
    named = [one for one in failures if "which the numbers of agents 1 and 3 cannot have" in one]
    assert {one[:7] for one in named} <= {"agent 0", "agent 2"}
    assert "at step 0: the run has diverged" in named[0]


def test_peers_without_keys_are_refused(tmp_path: Path) -> None:
    folders = write_local_shards(tmp_path, *deployed(consensus="masked", steps=2))
    with pytest.raises(GossamerError, match="draws its pads from keys, and agent 2 runs without any; leave out --inse"):
        run_peer(folders[2], PeerOptions(), insecure=True)


def test_the_senders_of_a_neighbour_are_in_the_shard_alone(tmp_path: Path) -> None:
    """Of every neighbour the agents that send to it, as C has them; a shard for plain consensus has none."""
    deployment, settings = deployed(consensus="masked", steps=2)
    for k, folder in enumerate(write_local_shards(tmp_path, deployment, settings)):
        (topology,) = read_shard(folder).share.topologies
        left, right = sorted(((k - 1) % M, (k + 1) % M))
        across = (k + 2) % M
        expected = [(z, y) for z in (left, right) for y in sorted((k, across))]
        assert topology.senders is not None
        assert topology.senders.tolist() == [list(pair) for pair in expected]
    contacts = [read_shard(tmp_path / f"agent-{k}").membership.contact for k in range(M)]
    plain = cut_shards(deployment, settings.model_copy(update={"consensus": "plain"}), "run", contacts)
    assert plain[0].share.topologies[0].senders is None


def test_agents_that_die_repeat_no_pad(tmp_path: Path) -> None:
    """Two are killed and rejoin: the weights are the simulation's, and all sessions differ, as do their pads."""
    deployment, settings = deployed(consensus="masked", steps=150, checkpoint_every=20, evaluate_every=100)
    folders = write_local_shards(tmp_path, deployment, settings)
    with Agents(folders) as agents:
        agents.start_all()
        for k, step in ((2, 40), (0, 80)):
            wait_until((state_folder(folders[k]) / f"checkpoint-{step}.safetensors").exists, "the training goes on")
            agents.signal(k, signal.SIGKILL)
            agents.wait_killed(k)
            agents.start(k)
        agents.wait_finished()
    check(folders, simulated(deployment, settings))
    for folder in map(state_folder, folders):
        assert len((folder / SESSION_LOG).read_text().splitlines()) >= 3
        assert count_repeated_sessions(folder) == 0
    log = state_folder(folders[0]) / SESSION_LOG
    log.write_text(log.read_text() * 2)
    assert count_repeated_sessions(log.parent) == len(log.read_text().splitlines()) // 2


@pytest.mark.parametrize("changes", [{"update": "momentum"}, {"mixing": "uniform", "topology": "complete"}], ids=str)
def test_sites_end_with_the_weights_of_the_whole(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = deployed(consensus="masked", steps=20, **changes)
    given = {"combination": '"../C.csv"'} if "mixing" in changes else {}
    folders = shards_of(write_sites(tmp_path, deployment, settings, **given), tmp_path / "shards")
    assert in_threads(folders, run=over(Hub())) == []
    check_sites(folders, simulated(deployment, settings))
    for k, folder in enumerate(folders):
        (topology,) = read_shard(folder / f"run-{RUN}" / "planned").share.topologies
        np.testing.assert_array_equal(topology.senders, list_senders(deployment.combination, k))


def test_a_site_with_one_neighbour_is_refused_when_its_shard_is_made(tmp_path: Path) -> None:
    deployment, settings = deployed(consensus="masked")
    paths = write_sites(tmp_path, deployment, settings, combination='"../C.csv"')
    (tmp_path / "C.csv").write_text("0.7,0.3,0,0\n")
    with pytest.raises(GossamerError, match=r"site\.toml: masked consensus .* agent 0 mixes with only agent 1"):
        make_site_shard(paths[0])


def test_a_line_is_refused_before_shards_are_cut() -> None:
    with pytest.raises(GossamerError, match="agent 0 mixes with only agent 1"):
        deployed(consensus="masked", topology="line")


def test_a_shard_with_other_senders_is_refused(tmp_path: Path) -> None:
    """Senders that leave a neighbour to this agent alone, or leave this agent out."""
    deployment, settings = deployed(consensus="masked", steps=2)
    contacts = [Contact(f"127.0.0.1:{k + 1}", None) for k in range(M)]
    shard = cut_shards(deployment, settings, "run", contacts)[0]
    for pairs, message in (
        (
            [[1, 0], [3, 0], [3, 2]],
            "at least 2 senders of each neighbour, found agent 0 alone for 1",
        ),
        ([[1, 2], [1, 3], [3, 0], [3, 2]], "should hold agent 0 among the senders of each neighbour"),
        ([[1, 0], [1, 2]], "should hold the neighbours that the agent mixes with"),
        ([[1, 0], [1, 9], [3, 0], [3, 2]], "numbers 0 to 3"),
    ):
        write_shard(tmp_path, replace(shard, share=add_senders(shard.share, [np.array(pairs)])))
        with pytest.raises(GossamerError, match=message):
            read_shard(tmp_path)
    write_shard(tmp_path, replace(shard, settings=settings.model_copy(update={"consensus": "plain"})))
    with pytest.raises(GossamerError, match="unknown array 'senders'"):
        read_shard(tmp_path)
