"""Files that a disk has damaged are told from whole ones, and a second process is kept out of a folder."""

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from agents.cases import make_case
from peers.disks import capture_log
from peers.harness import deployed
from safetensors.torch import load_file, save_file

from gossamer.api import predict, resume, train
from gossamer.data import DataGraph
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.files import lock_folder
from gossamer.peers import checkpoints
from gossamer.peers.checkpoints import CheckpointStore
from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.network.addresses import check_address
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.z85 import check_key, is_key
from gossamer.peers.process import PeerOptions, run_peer
from gossamer.peers.shards.shard import read_shard
from gossamer.runs import new_folders
from gossamer.runs.deployment import make_deployment
from gossamer.runs.observers import Observer
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.tensors import read_file, read_tensors, write_tensors

STEPS = 9


def settings() -> Settings:
    return make_settings(
        {"preset": "paper", "dataset": "case", "agents": 4, "hidden": 5, "steps": STEPS, "checkpoint_every": 3,
         "topology": "complete", "initial_deviation": 0.3, "baselines": False}
    )  # fmt: skip


def interrupted(folder: Path, graph: DataGraph, at: int = 8) -> None:
    """A run that is stopped, with checkpoints of the steps 6 and `at`."""
    train(graph, settings(), out=folder, should_stop=iter([False] * at + [True]).__next__)


def flip(path: Path, place: int = -3) -> None:
    """The lowest bit of a byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, cut_off, empty])
def test_a_run_goes_on_from_the_newest_whole_checkpoint(damage: Callable[[Path], None], tmp_path: Path) -> None:
    graph, folder = make_case(n=40).graph, tmp_path / "run"
    whole = train(graph, settings()).run
    interrupted(folder, graph)
    damage(folder / "checkpoint.safetensors")
    with pytest.warns(GossamerWarning, match=r"checkpoint\.safetensors.*goes on from step 6"):
        again = resume(folder, graph=graph).run
    assert (folder / "checkpoint.safetensors.damaged").is_file()
    for name, part in whole.host.params.items():
        assert torch.equal(again.host.params[name], part)
    assert [record["step"] for record in again.history] == [record["step"] for record in whole.history]


def test_without_a_whole_checkpoint_a_run_says_so_and_touches_nothing(tmp_path: Path) -> None:
    graph, folder = make_case(n=40).graph, tmp_path / "run"
    interrupted(folder, graph)
    flip(folder / "checkpoint.safetensors")
    flip(folder / "checkpoint.previous.safetensors")
    with pytest.raises(GossamerError, match=r"checkpoint\.safetensors is damaged.*no whole checkpoint is left"):
        resume(folder, graph=graph)
    assert (folder / "checkpoint.safetensors").is_file()


def test_a_run_killed_between_two_renamings_of_its_checkpoint_goes_on(tmp_path: Path) -> None:
    graph, folder = make_case(n=40).graph, tmp_path / "run"
    interrupted(folder, graph)
    (folder / "checkpoint.safetensors").unlink()
    assert resume(folder, graph=graph).run.complete


@pytest.mark.parametrize("name", ["weights", "network"])
def test_a_flipped_bit_in_weights_or_network_is_told(name: str, tmp_path: Path) -> None:
    graph, folder = make_case(n=40).graph, tmp_path / "run"
    train(graph, settings(), out=folder)
    flip(folder / f"{name}.safetensors")
    with pytest.raises(GossamerError, match=rf"{name}\.safetensors is damaged: .* checksum"):
        predict(folder, graph=graph)


def test_a_checksum_is_of_words_names_and_shapes_too_and_files_without_one_open(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"one": torch.arange(6.0).reshape(2, 3)}, step="12")
    whole = path.read_bytes()
    for old, new in ((b'"one"', b'"two"'), (b'"12"', b'"13"'), (b"[2,3]", b"[3,2]"), (b'"F32"', b'"I32"')):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(GossamerError, match="is damaged"):
            read_tensors(path)
    path.write_bytes(whole)
    save_file(load_file(path), tmp_path / "older.safetensors")
    assert torch.equal(read_tensors(tmp_path / "older.safetensors")["one"], read_tensors(path)["one"])


def test_a_peer_offers_whole_checkpoints_only(tmp_path: Path) -> None:
    params, state = {"w": torch.ones(1, 8, 4)}, {"v": torch.zeros(1, 8, 4)}
    disk = CheckpointStore(tmp_path, 4, params, state)
    for step in (10, 20, 30):
        disk.save(step, {"w": params["w"] * step}, state)
    flip(tmp_path / "checkpoint-30.safetensors")
    (tmp_path / "checkpoint-10.safetensors").write_bytes((tmp_path / "checkpoint-20.safetensors").read_bytes())
    with capture_log(checkpoints.__name__) as lines:
        again = CheckpointStore(tmp_path, 4, params, state)
    assert [("checkpoint-10" in line, "restore is 20" in line) for line in lines] == [(True, True), (False, True)]
    assert again.steps() == [0, 20]
    assert torch.equal(again.load(20)[0]["w"], params["w"] * 20)
    assert (tmp_path / "checkpoint-30.safetensors.damaged").is_file()
    flip(tmp_path / "checkpoint-20.safetensors")  # while the agent runs
    with pytest.raises(GossamerError, match=r"checkpoint-20\.safetensors is damaged"):
        again.load(20)


def test_a_second_process_is_kept_out_of_a_run_directory(tmp_path: Path) -> None:
    """While the first trains; in another thread, since a lock is taken again by the same one."""
    graph, folder = make_case(n=40).graph, tmp_path / "run"
    refused: list[str] = []

    def disturb(step: int, loss: float) -> None:
        def again() -> None:
            others: tuple[Callable[[], object], ...] = (
                lambda: resume(folder, graph=graph),
                lambda: train(graph, settings(), out=folder),
            )
            for other in others:
                with pytest.raises(GossamerError) as error:
                    other()
                refused.append(str(error.value))

        if step == 5:
            thread = threading.Thread(target=again)
            thread.start()
            thread.join()

    train(graph, settings(), out=folder, observers=[Observer(on_step=disturb)])
    assert f"process {os.getpid()} on" in refused[0]
    assert f"trains in {folder} already" in refused[0]
    assert "is not an empty folder" in refused[1]
    assert resume(folder, 12, graph=graph).run.host.step == 12  # and let in when the first has gone


def test_two_that_begin_in_the_same_empty_folder(tmp_path: Path) -> None:
    held, done = threading.Event(), threading.Event()

    def first() -> None:
        with lock_folder(tmp_path, "trains here"):
            held.set()
            done.wait(30)

    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert held.wait(30)
        told = f"process {os.getpid()} on .* trains in {tmp_path} already"
        with pytest.raises(GossamerError, match=told), new_folders.create_locked(tmp_path):
            pass
    finally:
        done.set()
        thread.join()
    with new_folders.create_locked(tmp_path):  # a lock that was left behind is no file of a run
        pass


def test_what_a_peer_holds_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        alone = make_settings({"dataset": "case", "agents": 1, "steps": 2, "checkpoint_every": 1})
        (folder,) = write_local_shards(tmp_path / "shards", make_deployment(make_case(n=40).graph, alone), alone)
        result = run_peer(folder, PeerOptions(give_up=30))
    finally:
        os.umask(before)
    held = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert {path.name for path in held} >= {"share.safetensors", "weights.safetensors", "checkpoint-2.safetensors"}
    for path, mode in held.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert result in held


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_local_shards(tmp_path_factory.mktemp("shards"), *deployed())[0]


@pytest.mark.parametrize(
    "address",
    [
        "localhost:1", "10.0.0.1:5555", "a-b.example.org:65535", "xn--hst-sna:80", "[::1]:5555", "[fe80::1%eth0]:1",
        "a_b:2",
    ],
)  # fmt: skip
def test_addresses_that_are_some(address: str) -> None:
    assert check_address(address, "here") == address


@pytest.mark.parametrize(
    "address",
    [
        "höst-b:45802", "host/5:45802", "host", ":5", "host:", "host:0", "host:080", "host:65536", "host:-1", "host:٣",
        "a b:5", "host:5 ", "-a:5", "a-:5", "a..b:5", f"{'a' * 64}:5", "1.2.3:5", "1.2.3.256:5", "::1:5", "[::1:5",
        "[x]:5", "[::1%a/b]:5", "*:5", "tcp://a:5", "a:5\n", "a:000000005",
    ],
)  # fmt: skip
def test_addresses_that_are_none(address: str, shard: Path) -> None:
    with pytest.raises(GossamerError, match="here: expected an address host:port, got") as error:
        check_address(address, "here")
    assert str(error.value).isascii()
    content = json.loads((shard / "shard.json").read_text())
    content["neighbours"]["1"]["address"] = address
    (shard / "shard.json").write_text(json.dumps(content))
    with pytest.raises(
        GossamerError, match=r"shard\.json: neighbours\.1\.address: expected an address host:port, found"
    ):
        read_shard(shard)


def test_public_keys_are_told_as_zeromq_tells_them() -> None:
    for key in [make_curve_keys()[0] for _ in range(20)]:
        assert is_key(key)
        assert check_key(key, "here") == key
    for wrong in ("", "x" * 39, "x" * 41, "#" * 40, "ä" * 40, '"' * 40):
        assert not is_key(wrong)
        with pytest.raises(GossamerError):
            check_key(wrong, "here")


def test_no_bit_of_a_checkpoint_changes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_tensors(path, {"params.w": torch.tensor([1.0, 2.0])}, step="3", seconds="1.5")
    whole, unnoticed = path.read_bytes(), []
    for place in range(len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[place] ^= 1 << bit
            path.write_bytes(content)
            try:
                read_file(path)
                unnoticed.append((place, bit))
            except GossamerError:
                pass
    assert not unnoticed
