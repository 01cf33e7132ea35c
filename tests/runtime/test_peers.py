"""Peers over real sockets end with the simulation's weights; what does not belong is kept out."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gossamer.agents.step import training_step
from gossamer.errors import GossamerError
from gossamer.experiments.theory import small_problem
from gossamer.runtime.crew import Crew, free_ports, write_secret, write_shards
from gossamer.runtime.deployment import Deployment, host_of, make_deployment
from gossamer.runtime.messages import count_messages
from gossamer.runtime.peer import MissingNeighbour, Watch, host_of_shard, run_peer, state_of
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.shards import Contact, read_shard
from gossamer.runtime.simulation import run
from gossamer.runtime.sockets import Sockets, new_keys
from gossamer.runtime.tensors import read_tensors
from gossamer.runtime.wire import Status, encode

M, STEPS = 4, 50
LARGEST = 100_000  # bytes of the largest planned message of `pair`


def problem(**changes: Any) -> tuple[Deployment, Settings]:
    """120 vertices on a ring of 4 agents, the last of which has no label."""
    from dataclasses import replace

    settings = make_settings(
        {"dataset": "blocks", "agents": M, "topology": "ring", "steps": STEPS, "hidden": 8, "dtype": "float64",
         "evaluate_every": 25, "checkpoint_every": 10, "step_size": 0.1, "initial_deviation": 0.3, **changes}
    )  # fmt: skip
    graph = small_problem()
    owner = make_deployment(graph, settings).assignment
    return make_deployment(replace(graph, train=graph.train & (owner != M - 1)), settings, assignment=owner), settings


def simulated(deployment: Deployment, settings: Settings) -> dict[str, torch.Tensor]:
    host = host_of(deployment, settings)
    for _ in range(settings.steps):
        host, _ = run(training_step(host))
    return host.params


def in_threads(folders: list[Path], watch: Watch | None = None) -> list[BaseException]:
    """Run peers side by side in this process, over real sockets."""
    failures: list[BaseException] = []

    def one(folder: Path) -> None:
        try:
            run_peer(folder, watch or Watch(give_up=60))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a peer hangs"
    return failures


def kept(folder: Path) -> Path:
    return state_of(folder, read_shard(folder))


def check(folders: list[Path], expected: dict[str, torch.Tensor]) -> None:
    for k, folder in enumerate(folders):
        for name, part in read_tensors(kept(folder) / "weights.safetensors").items():
            torch.testing.assert_close(part[0], expected[name][k], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "gd"},
        {"update": "momentum", "consensus_every": 3},
        {"update": "adam", "step_size": 0.01, "dropout": 0.5},
        {"layers": "chebyshev", "order": 2, "update": "momentum", "step_size": 0.02, "bias": True},
        {"update": "gd", "consensus_every": 0, "dropout": 0.2},
    ],
    ids=str,
)
def test_fifty_steps_over_the_network_equal_the_simulation(tmp_path: Path, changes: dict[str, Any]) -> None:
    deployment, settings = problem(**changes)
    folders = write_shards(tmp_path, deployment, settings)
    assert in_threads(folders) == []
    check(folders, simulated(deployment, settings))


def test_the_bytes_of_rows_and_weights_are_the_planned_ones(tmp_path: Path) -> None:
    deployment, settings = problem(update="gd", evaluate_every=1000)
    folders = write_shards(tmp_path, deployment, settings)
    last: dict[int, dict[str, Any]] = {}
    assert in_threads(folders, Watch(report=lambda state: last.update({state["agent"]: state}))) == []
    planned = count_messages(deployment, settings)
    sent = {phase: sum(s["planned_bytes"].get(phase, 0) for s in last.values()) for phase in ("backward", "consensus")}
    assert sent["backward"] == planned["backward"]["bytes"] * STEPS
    assert sent["consensus"] == planned["consensus"]["bytes"] * STEPS
    forward = sum(s["planned_bytes"]["forward"] for s in last.values())
    assert forward == planned["forward"]["bytes"] * STEPS + 2 * planned["evaluation"]["bytes"]  # at 0 and at the end


def test_a_shard_holds_nothing_of_another_agent(tmp_path: Path) -> None:
    deployment, settings = problem()
    graph, owner = deployment.graph, deployment.assignment
    for k, folder in enumerate(write_shards(tmp_path, deployment, settings)):
        share = read_shard(folder).share
        mine = owner == k
        np.testing.assert_array_equal(share.features, graph.features[mine])
        np.testing.assert_array_equal(share.targets, graph.targets[mine])
        # No number on the disk is a feature of another agent.
        stored = np.concatenate([t.numpy().reshape(-1) for t in read_tensors(folder / "share.safetensors").values()])
        assert not np.isin(graph.features[~mine].reshape(-1), stored).any()
        assert {path.name for path in folder.iterdir()} == {"shard.json", "share.safetensors", "key.secret"}
        assert stat.S_IMODE((folder / "key.secret").stat().st_mode) == 0o600
        others = {contact.key for z, contact in read_shard(folder).neighbours.items()}
        assert len(others) == 2  # the keys of its neighbours on the ring, and no more


def test_a_host_from_a_shard_is_the_host_of_the_deployment(tmp_path: Path) -> None:
    deployment, settings = problem()
    for k, folder in enumerate(write_shards(tmp_path, deployment, settings)):
        found, expected = host_of_shard(read_shard(folder)), host_of(deployment, settings, [k])
        for name, part in expected.params.items():
            assert torch.equal(found.params[name], part)
        assert torch.equal(found.train_pass.features, expected.train_pass.features)
        assert found.train_pass.plan.layers[0].propagations[0].outgoing == (
            expected.train_pass.plan.layers[0].propagations[0].outgoing
        )


def test_a_damaged_shard_is_refused(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, *problem())[0]
    whole = (folder / "share.safetensors").read_bytes()
    (folder / "share.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(GossamerError, match="copy the shard again"):
        read_shard(folder)
    (folder / "share.safetensors").unlink()
    with pytest.raises(GossamerError, match="missing"):
        read_shard(folder)
    (folder / "shard.json").write_text("{")
    with pytest.raises(GossamerError, match="not valid JSON"):
        read_shard(folder)
    (folder / "shard.json").unlink()
    with pytest.raises(GossamerError, match="not a shard"):
        read_shard(folder)


def test_a_secret_key_that_others_can_read_or_that_is_another_one_is_refused(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, *problem())[0]
    (folder / "key.secret").chmod(0o644)
    with pytest.raises(GossamerError, match="chmod 600"):
        run_peer(folder, Watch())
    (folder / "key.secret").unlink()
    with pytest.raises(GossamerError, match="cannot read the secret key"):
        run_peer(folder, Watch())
    write_secret(folder / "key.secret", new_keys()[1])
    with pytest.raises(GossamerError, match="not the key"):
        run_peer(folder, Watch())
    with pytest.raises(GossamerError, match="exists"):
        write_secret(folder / "key.secret", "other")


def test_a_neighbour_that_never_comes_is_named(tmp_path: Path) -> None:
    folders = write_shards(tmp_path, *problem())
    failures = in_threads(folders[:1], Watch(give_up=1.0))
    assert len(failures) == 1
    assert isinstance(failures[0], MissingNeighbour)
    assert "s for agent 1, 2, 3" in str(failures[0])


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, *problem())[0]
    host, port = read_shard(folder).contact.address.split(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        with pytest.raises(GossamerError, match=r"cannot listen on .*; free the port or change it"):
            run_peer(folder, Watch())


@pytest.fixture
def pair() -> Iterator[tuple[Sockets, Contact, str]]:
    """An agent 0 with one neighbour, agent 1, and the neighbour's secret key."""
    (mine, my_secret), (public, secret) = new_keys(), new_keys()
    here, there = free_ports(2)
    contact = Contact(f"127.0.0.1:{here}", mine)
    sockets = Sockets(0, contact.address, {1: Contact(f"127.0.0.1:{there}", public)}, my_secret, LARGEST)
    yield sockets, contact, secret
    sockets.close()


def arrivals(sockets: Sockets, seconds: float = 2.0) -> list[tuple[int, list[bytes]]]:
    deadline, found = time.monotonic() + seconds, []
    while time.monotonic() < deadline and not found:
        found += [(sender, [bytes(part) for part in parts]) for sender, parts in sockets.receive(0.05)]
    return found


def test_the_neighbours_key_is_let_in_and_its_messages_carry_its_number(pair: tuple[Sockets, Contact, str]) -> None:
    sockets, contact, secret = pair
    other = Sockets(1, f"127.0.0.1:{free_ports(1)[0]}", {0: contact}, secret, 1000)
    other.send(0, [b"header", b"payload"])
    assert arrivals(sockets) == [(1, [b"header", b"payload"])]
    other.close()


@pytest.mark.parametrize("who", ["wrong key", "no key", "garbage"])
def test_strangers_are_kept_out(pair: tuple[Sockets, Contact, str], who: str) -> None:
    sockets, contact, secret = pair
    host, port = contact.address.split(":")
    if who == "garbage":
        with socket.create_connection((host, int(port))) as raw:
            for _ in range(50):
                try:
                    raw.sendall(os.urandom(1000))
                except OSError:
                    break
        assert arrivals(sockets, 0.5) == []
    else:
        key = None if who == "no key" else new_keys()[1]
        stranger = Sockets(1, f"127.0.0.1:{free_ports(1)[0]}", {0: contact}, key, 1000)
        stranger.send(0, [b"header"])
        assert arrivals(sockets, 1.0) == []
        stranger.close()
        if who == "wrong key":
            assert sockets.turned_away > 0
    friend = Sockets(1, f"127.0.0.1:{free_ports(1)[0]}", {0: contact}, secret, 1000)  # and the training goes on
    friend.send(0, [b"welcome"])
    assert arrivals(sockets) == [(1, [b"welcome"])]
    friend.close()


def test_the_largest_planned_message_arrives(pair: tuple[Sockets, Contact, str]) -> None:
    sockets, contact, secret = pair
    friend = Sockets(1, f"127.0.0.1:{free_ports(1)[0]}", {0: contact}, secret, 1000)
    friend.send(0, [b"header", b"x" * LARGEST])
    assert [len(part) for _, parts in arrivals(sockets, 5.0) for part in parts] == [6, LARGEST]
    friend.close()


def test_a_message_that_is_too_large_never_arrives(pair: tuple[Sockets, Contact, str]) -> None:
    sockets, contact, secret = pair
    friend = Sockets(1, f"127.0.0.1:{free_ports(1)[0]}", {0: contact}, secret, 1000)
    friend.send(0, [b"x" * 200_000])
    assert arrivals(sockets, 1.0) == []
    friend.send(0, encode(Status(1, 1), "run"))  # ZeroMQ drops the connection and makes a new one
    deadline = time.monotonic() + 10
    found: list[tuple[int, list[bytes]]] = []
    while not found and time.monotonic() < deadline:
        friend.send(0, [b"small"])
        found = arrivals(sockets, 0.3)
    assert found
    friend.close()


def test_a_crew_leaves_no_process_behind_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from gossamer.runtime.crew import Crew
if __name__ == "__main__":
    with Crew([Path(p) for p in sys.argv[1:]]) as crew:
        for states in crew.watch():
            if len(states) == len(sys.argv) - 1 and all(s["step"] > 2 for s in states.values()):
                print("running", flush=True)
"""
    folders = write_shards(tmp_path, *problem(steps=1_000_000, evaluate_every=1_000_000))
    parent = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, folders)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"running\n"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(parent.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(parent.pid, signal.SIGKILL)
    pytest.fail("an agent outlived the crew")


def test_an_agent_killed_and_started_again_ends_with_the_same_bits(tmp_path: Path) -> None:
    deployment, settings = problem(steps=400, checkpoint_every=20, evaluate_every=400)
    undisturbed = write_shards(tmp_path / "undisturbed", deployment, settings)
    with Crew(undisturbed) as crew:
        for _ in crew.watch():
            pass
    folders = write_shards(tmp_path / "disturbed", deployment, settings)

    def begun(folder: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "gossamer", "peer", str(folder)], stderr=subprocess.DEVNULL)

    processes = [begun(folder) for folder in folders]
    try:
        deadline = time.monotonic() + 60
        while not any(int(path.stem[11:]) >= 60 for path in kept(folders[2]).glob("checkpoint-*.safetensors")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        processes[2].kill()
        processes[2].wait()
        processes[2] = begun(folders[2])
        for process in processes:
            assert process.wait(timeout=120) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert int((kept(folders[0]) / "epoch").read_text()) > 1  # it did go back
    for calm, shaken in zip(undisturbed, folders, strict=True):
        expected, found = (read_tensors(kept(folder) / "weights.safetensors") for folder in (calm, shaken))
        assert all(torch.equal(found[name], part) for name, part in expected.items())
        assert read_shard(calm).run != read_shard(shaken).run
