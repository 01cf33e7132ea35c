"""keys, shard, peer and launch as a user runs them."""

import json
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.data.tasks import Task
from gossamer.peers.evaluation_log import score_agents
from gossamer.peers.local_processes import find_free_ports
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.keys import make_agent_keys
from gossamer.peers.progress import PeerReport
from gossamer.peers.protocol import member
from gossamer.peers.shards.shard import read_shard
from gossamer.report.agent_tables import process_table
from gossamer.runs.privacy_spec import parse_privacy
from gossamer.runs.secret_files import read_secrets
from gossamer.runs.tensors import read_tensors

SMALL = ["--preset", "paper", "--agents", "3", "--hidden", "4", "--dtype", "float64", "--steps", "20",
         "--evaluate-every", "10"]  # fmt: skip


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


def test_keys_are_made_once_and_kept_secret(tmp_path: Path) -> None:
    code, public, _ = invoke("keys", "--out", str(tmp_path / "site"))
    assert code == 0
    assert (tmp_path / "site" / "key.public").read_text() == public
    assert len(public.strip()) == 80
    secret = tmp_path / "site" / "key.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    kept = secret.read_text()
    code, _, told = invoke("keys", "--out", str(tmp_path / "site"))
    assert code == 2
    assert "move it away first" in told
    assert secret.read_text() == kept
    assert invoke("keys", "--secret", str(secret))[:2] == (0, public)
    (tmp_path / "torn").write_text(kept[:20])
    assert invoke("keys", "--secret", str(tmp_path / "torn"))[0] == 2


def test_shards_carry_the_keys_of_the_hosts_file(tmp_path: Path) -> None:
    key = next(key for key in iter(lambda: make_agent_keys()[0], None) if "#" in key)  # which does not begin a comment
    (tmp_path / "hosts.txt").write_text(f"# ours\nlocalhost:5001 {key}\nlocalhost:5002\n\nlocalhost:5003\n")
    out = tmp_path / "shards"
    code, table, told = invoke(
        "shard", "digits", *SMALL, "--hosts", str(tmp_path / "hosts.txt"), "--out", str(out), "--topology", "complete"
    )
    assert code == 0, told
    assert "2 of 3 agents had no public key" in told
    assert "localhost:5003" in table
    assert not (out / "agent-0" / "key.secret").exists()
    assert (out / "agent-1" / "key.secret").exists()
    shards = [read_shard(out / f"agent-{k}") for k in range(3)]
    members = [shard.membership for shard in shards]
    assert str(members[1].neighbours[0].key) + str(members[1].verify_keys[0]) == key
    assert len(set(members[1].verify_keys)) == 3
    assert members[1].verify_keys == members[2].verify_keys
    assert len({member.run for member in members}) == 1
    assert shards[2].settings.steps == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost:5001\n", "should have a line for each of 3 agents, it has 1"),
        ("a:1\nb\nc:3\n", "agent 1: expected an address host:port, got 'b'"),
        ("a:1\nb:99999\nc:3\n", "agent 1: expected an address host:port"),
        ("a:1\nhöst-b:45802\nc:3\n", "agent 1: expected an address host:port, got 'h\\xf6st-b:45802'; write an"),
        ("a:1\nhost/5:45802\nc:3\n", "agent 1: expected an address host:port, got 'host/5:45802'"),
        ("a:1\nb:2 tooshort\nc:3\n", "agent 1: 'tooshort' is not a public key of 80 characters"),
        ("a:1\nb:2 OLD\nc:3\n", "agent 1: this public key has no verify key yet; print it whole"),
        ("a:1\nb:2\na:1\n", "two agents listen on 'a:1'"),
        ("a:1 KEY\nb:2 KEY\nc:3\n", "two agents have the same public key"),
    ],
)
def test_a_hosts_file_that_does_not_fit_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "hosts.txt").write_text(text.replace("KEY", make_agent_keys()[0]).replace("OLD", make_curve_keys()[0]))
    code, _, told = invoke(
        "shard", "digits", *SMALL, "--hosts", str(tmp_path / "hosts.txt"), "--out", str(tmp_path / "shards")
    )
    assert code == 2
    assert message in told
    assert not (tmp_path / "shards").exists()


def test_a_site_whose_secret_lies_in_its_shard_already_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "features.csv").write_text("vertex,x\n1,1\n2,0\n")
    (tmp_path / "labels.csv").write_text("vertex,label,split\n1,0,train\n2,1,test\n")
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    (tmp_path / "owners.csv").write_text("vertex,agent\n")
    invoke("keys", "--out", str(tmp_path))
    (tmp_path / "site.toml").write_text(
        'run = "alone"\nagent = 0\naddress = "localhost:5001"\nsecret = "key.secret"\ndata = "."\nclasses = 2\n'
        "[neighbours]\n[settings]\nagents = 1\n"
    )
    folder = tmp_path / "shards" / "agent-0"
    invoke("keys", "--out", str(folder))
    (folder / "key.public").unlink()
    make = ("shard", "--site", str(tmp_path / "site.toml"), "--out", str(tmp_path / "shards"))
    code, _, told = invoke(*make)
    assert code == 2
    assert "key.secret exists" in told
    assert [path.name for path in folder.iterdir()] == ["key.secret"]
    (folder / "key.secret").write_text((tmp_path / "key.secret").read_text())
    code, table, told = invoke(*make)
    assert code == 0, told
    assert "localhost:5001" in table
    assert (folder / "shard.json").is_file()


@pytest.mark.parametrize(
    ("task", "score", "heading", "held_out", "shown"),
    [
        ("multiclass", "accuracy", "acc", [2.0, 4, 4, 1, 0, 1, 3, 4, 0], "25.0%"),
        ("multiclass", "macro_f1", "macro F1", [2.0, 4, 4, 1, 0, 1, 3, 4, 0], "0.2000"),
        ("regression", "mse", "MSE", [2.0, 4, 4, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "0.25"),
    ],
)
def test_the_table_of_a_launch_has_a_row_for_each_agent(
    task: Task, score: str, heading: str, held_out: list[float], shown: str
) -> None:
    nothing = [0.0] * len(held_out)
    measured = {"train": [4.0, 8.0, 8.0, *nothing[3:]], "validation": held_out, "test": nothing}
    state: PeerReport = {
        "agent": 0, "step": 7, "planning": False, "epoch": 1, "metrics": measured, "neighbours": [1, 2],
        "bytes_in": 3_000_000, "bytes_out": 2_000_000, "links": {}, "refused": {}, "refused_from": {},
        "dropped": 0, "steps": 10, "serving": False, "time": 0.0, "process": 1,
        "cpu_seconds": 0.0, "finished": False, "all_done": False, "waiting_for": [2], "waited": 5.0,
    }  # fmt: skip
    table = process_table({0: state}, 2, 9, score, partial(score_agents, task=task, width=2))
    cells = {str(column.header): list(column.cells) for column in table.columns}
    assert cells["loss"][0] == "0.5000"
    assert cells[heading][0] == shown
    assert cells["neighbours"][0] == "1, 2"
    assert cells["waiting for"] == ["2 (5 s)", "(starting)"]
    assert cells["step"] == ["7", ""]
    state["metrics"] = None
    table = process_table({0: state}, 2, 9, score, partial(score_agents, task=task, width=2))
    assert [next(iter(column.cells)) for column in table.columns][2:4] == ["-", "-"]


def test_a_peer_without_a_shard_or_a_neighbour_says_so(tmp_path: Path) -> None:
    code, _, told = invoke("peer", str(tmp_path / "nowhere"))
    assert code == 2
    assert "is not a shard" in told


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"localhost:5001"', '"localhost/5:5001"', "neighbours.1.address: expected an address host:port"),
        ('"num_agents": 3', '"num_agents": -3', "num_agents: Input should be greater than or equal to 1, found -3"),
        ('"agent": 0', '"agent": NaN', "is not valid JSON: NaN is not a JSON number"),
        ('"agent": 0', f'"agent": {"9" * 5000}', "is not valid JSON"),
        ('"agent": 0', f'"agent": {"[" * 100_000}', "is not valid JSON"),
    ],
)  # fmt: skip
def test_a_manifest_that_somebody_has_edited_ends_a_peer_with_one_line(
    old: str, new: str, message: str, edited: Path
) -> None:
    manifest = edited / "shard.json"
    whole = manifest.read_text()
    assert old in whole
    manifest.write_text(whole.replace(old, new))
    code, _, told = invoke("peer", str(edited), "--insecure")
    manifest.write_text(whole)
    assert code == 2
    assert message in told
    assert str(manifest) in told


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Agent 0 of three that were cut."""
    folder = tmp_path_factory.mktemp("edited")
    (folder / "hosts.txt").write_text("".join(f"localhost:{port}\n" for port in (5000, 5001, 5002)))
    options = [*SMALL, "--hosts", str(folder / "hosts.txt"), "--out", str(folder / "shards"), "--topology", "complete"]
    code, _, told = invoke("shard", "digits", *options)
    assert code == 0, told
    return folder / "shards" / "agent-0"


def test_a_peer_that_leaves_before_all_have_finished_says_so_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has finished, and nobody is there: systemd starts it again, and launch fails."""
    ports = find_free_ports(3)
    (tmp_path / "hosts.txt").write_text("".join(f"127.0.0.1:{port}\n" for port in ports))
    out = tmp_path / "shards"
    invoke("shard", "digits", *SMALL, "--hosts", str(tmp_path / "hosts.txt"), "--out", str(out))
    run = out / "agent-0" / f"run-{read_shard(out / 'agent-0').membership.run}"
    run.mkdir()
    (run / "done").touch()
    monkeypatch.setattr(member, "ISOLATION_TIMEOUT", 0.5)
    code, report, told = invoke("peer", str(out / "agent-0"), "--report")
    assert code == 5
    assert "agent 0 has finished and leaves" in told
    assert "not that agent 1, 2 has finished" in told
    last = json.loads(report.splitlines()[-1])
    assert (last["finished"], last["all_done"], last["refused_from"]) == (True, False, {})


@pytest.mark.parametrize("options", [[], ["--topology", "star", "--compress", "power:1"]], ids=["plain", "power"])
def test_train_with_the_secrets_of_a_launch_gives_its_bits(tmp_path: Path, options: list[str]) -> None:
    """With PowerGossip too, whose state has a slot for each neighbour: of a star's centre more than of the others."""
    said = ""

    def run(command: str, *more: str) -> dict[str, Any]:
        nonlocal said
        arguments = [command, "digits", *SMALL, "--dropout", "0.5", "--no-baselines", "--json", *options, *more]
        done = subprocess.run(
            [sys.executable, "-m", "gossamer", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    launched = run("launch", "--out", "launched", "--log-level", "debug")
    simulated = run("train", "--out", "simulated", "--secrets", "launched/secrets.json")
    for mask, scores in simulated["distributed"].items():
        assert launched["distributed"][mask] == pytest.approx(scores, abs=1e-9)
    assert launched["messages"] == simulated["messages"]
    found, expected = (read_tensors(tmp_path / name / "weights.safetensors") for name in ("launched", "simulated"))
    for name, part in expected.items():
        assert torch.equal(found[name], part)
    secrets = read_secrets(tmp_path / "launched" / "secrets.json", range(3))  # refuses one that others can read
    for agent, secret in secrets.by_agent.items():
        assert secret.hex() not in said
        holding = [path for path in (tmp_path / "launched").rglob("*") if path.is_file() and _holds(path, secret)]
        own = next((tmp_path / "launched" / "agents" / f"agent-{agent}").glob("run-*"))
        assert sorted(holding) == sorted([own / "secrets.json", tmp_path / "launched" / "secrets.json"])
    assert (tmp_path / "launched" / "curves.png").is_file()
    assert [path.name for path in sorted((tmp_path / "launched" / "agents").iterdir())] == [
        "agent-0",
        "agent-1",
        "agent-2",
    ]


def _holds(path: Path, secret: bytes) -> bool:
    content = path.read_bytes()
    return secret in content or secret.hex().encode() in content


@pytest.mark.parametrize(
    ("option", "value"),
    [("encoder", "4"), ("privacy", "edge:epsilon=8,delta=1e-4"), ("privacy", "node:epsilon=8,delta=1e-4")],
)
def test_shards_are_cut_for_runs_with_an_encoder_or_a_budget(tmp_path: Path, option: str, value: str) -> None:
    """Their settings hold the noise that the budget needs, so that all peers have the same."""
    (tmp_path / "hosts.txt").write_text("localhost:5001\nlocalhost:5002\nlocalhost:5003\n")
    data = "blocks:vertices=100,edges=300,features=6,classes=3"
    files = ["--hosts", str(tmp_path / "hosts.txt"), "--out", str(tmp_path / "shards")]
    code, _, told = invoke("shard", data, "--agents", "3", "--steps", "5", f"--{option}", value, *files)
    assert code == 0, told
    found = [read_shard(tmp_path / "shards" / f"agent-{k}").settings for k in range(3)]
    assert found[0] == found[1] == found[2]
    assert (found[0].encoder, found[0].encodes) == (4 if option == "encoder" else 0, True)
    spec = found[0].privacy_spec
    if option == "privacy":
        assert spec is not None
        assert spec.noise is not None
        assert found[0].privacy == str(parse_privacy(value).with_noise(spec.noise))  # type: ignore[union-attr]
    code, _, told = invoke(
        "shard", data, "--agents", "3", f"--{option}", value, "--ranks", "2", "--out", str(tmp_path / "cut")
    )
    assert (code, "shares for ranks are cut for one stage" in told) == (2, True)
