"""Real processes that leave, are lost, join, move, and are split by network namespaces."""

import signal
from pathlib import Path

import pytest
import torch
from peers.changing import find_state, read_report, wait_for_members, write_changing
from peers.processes import Agents, wait_until
from peers.test_faults import cable

from gossamer.api import predict
from gossamer.errors import GossamerError
from gossamer.peers.departure import ask_to_leave
from gossamer.peers.identity import add_admitted
from gossamer.peers.status import read_status
from gossamer.peers.term_folders import MEMBERSHIP_LOG, read_log
from gossamer.runs.evaluations import read_evaluations
from gossamer.runs.manifests import Evaluation
from gossamer.runs.tensors import read_tensors


@pytest.mark.slow
def test_a_lost_agent_does_not_stop_the_others(tmp_path: Path) -> None:
    folders, _ = write_changing(tmp_path, 4, steps=600)
    with Agents(folders) as agents:
        agents.start_all()
        wait_until(lambda: read_report(folders[1])["step"] > 0, "all train")
        agents.signal(3, signal.SIGKILL)
        agents.wait_finished((0, 1, 2))
    logs = [read_log(find_state(folders[k])) for k in range(3)]
    assert (
        [one.following for one in logs[0]] == [one.following for one in logs[1]] == [one.following for one in logs[2]]
    )
    assert [entry.agent for entry in logs[0][-2].following or ()] == [0, 1, 2]
    assert logs[0][-1].following is None
    means = [read_tensors(find_state(folders[k]) / "mean.safetensors") for k in range(3)]
    for name, part in means[0].items():
        assert all(torch.equal(part, other[name]) for other in means[1:])
    steps = [one["step"] for one in read_evaluations(find_state(folders[1]) / "metrics.jsonl", Evaluation)]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, 600)
    status = read_status(folders[2], 0.0)
    assert (status["state"], status["agent"], status["members"]) == ("finished", 2, [0, 1, 2])
    assert predict(folders[2]).shape == (30, 3)


@pytest.mark.slow
def test_agents_join_and_leave(tmp_path: Path) -> None:
    folders, keys = write_changing(tmp_path, 3, 1, steps=10**6)
    with Agents(folders) as agents:
        for k in range(3):
            agents.start(k)
        wait_for_members(folders[1], range(3), step=20)
        for folder in folders[:3]:
            assert add_admitted(folder, keys[3])
        agents.start(3)
        wait_for_members(folders[1], (0, 1, 2, 3))
        wait_until(lambda: read_report(folders[3])["step"] > 0, "the new agent trains")
        before = read_report(folders[1])["links"]["2"]["sent"]
        assert sum(before.values()) > 0
        assert ask_to_leave(folders[0]) == (0, True)
        agents.wait_finished((0,))
        left = read_status(folders[0], 0.0)
        assert left["state"] == "left"
        assert left["step"] is not None
        assert left["step"] > 0
        with pytest.raises(GossamerError, match="agent 0 has left already"):
            ask_to_leave(folders[0])
        wait_for_members(folders[3], (1, 2, 3))
        step = read_report(folders[3])["step"]
        wait_until(lambda: read_report(folders[3])["step"] > step, "the others go on")
        sent = read_report(folders[1])["links"]["2"]["sent"]
        assert all(sent[kind] >= size for kind, size in before.items())  # of all memberships


@pytest.mark.slow
def test_a_split_heals(tmp_path: Path) -> None:
    addresses = [f"10.77.0.{1 if k < 4 else 2}:{5000 + k}" for k in range(6)]
    with cable() as (namespaces, set_cable):
        folders, _ = write_changing(tmp_path, 6, addresses=addresses, steps=10**6)
        with Agents(folders, [namespaces[k >= 4] for k in range(6)]) as agents:
            agents.start_all()
            wait_for_members(folders[0], range(6), step=20)
            set_cable("down")
            wait_for_members(folders[0], range(4))
            wait_until(lambda: read_report(folders[4])["standing"] == "split", "the smaller part waits")
            assert read_report(folders[4])["members"] == list(range(6))
            set_cable("up")
            wait_until(lambda: read_report(folders[4])["membership"] > 0, "the smaller part learns of it")
            for k in (0, 5):
                wait_for_members(folders[k], range(6))
            step = read_report(folders[4])["step"]
            wait_until(lambda: read_report(folders[4])["step"] > step, "all go on")
        assert not any((find_state(folder) / "run.json").exists() for folder in folders)


@pytest.mark.slow
def test_an_agent_moves_to_another_address_with_another_key(tmp_path: Path) -> None:
    from gossamer.peers.local_processes import find_free_ports
    from gossamer.peers.network.keys import make_agent_keys, write_secret

    folders, _ = write_changing(tmp_path, 4, steps=10**6)
    with Agents(folders) as agents:
        agents.start_all()
        wait_for_members(folders[0], range(4), step=20)
        agents.signal(3, signal.SIGKILL)
        wait_for_members(folders[0], range(3))
        public, secret = make_agent_keys()
        (folders[3] / "key.secret").unlink()
        write_secret(folders[3] / "key.secret", secret)
        address = f"127.0.0.1:{find_free_ports(1)[0]}"
        agents.start(3, address=address)
        wait_until(lambda: read_report(folders[3])["standing"] == "joining", "it asks to join")
        assert read_report(folders[0])["members"] == [0, 1, 2]  # nobody has admitted the new key
        for folder in folders[:3]:
            add_admitted(folder, public)
        wait_for_members(folders[0], range(4))
        wait_until(lambda: read_report(folders[3])["standing"] == "member", "it is a member again")
    entry = (read_log(find_state(folders[0]))[-1].following or ())[3]
    assert entry.profile is not None
    assert (entry.profile.address, entry.profile.key) == (address, public)
    assert (find_state(folders[0]) / MEMBERSHIP_LOG).is_file()
