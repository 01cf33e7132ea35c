"""`gossamer leave` and `admit`, and how mistakes with runs whose agents may change are told."""

import json
from pathlib import Path

import pytest
from commands.inside import run
from peers.changing import find_state, write_changing

from gossamer.peers.departure import LEAVE_FILE
from gossamer.peers.identity import read_admitted
from gossamer.peers.network.keys import make_agent_keys


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = run(*arguments, cwd=Path.cwd())
    return done.returncode, done.stdout, done.stderr.replace("\n", " ")


def test_leave_and_take_it_back(tmp_path: Path) -> None:
    (folder, *_), _ = write_changing(tmp_path, 3)
    code, out, _ = invoke("leave", str(folder))
    assert code == 0
    assert "as soon as it runs" in out
    assert (find_state(folder) / LEAVE_FILE).exists()
    assert invoke("leave", str(find_state(folder)), "--undo")[0] == 0  # the folder of its run will do, too
    assert not (find_state(folder) / LEAVE_FILE).exists()
    code, _, err = invoke("leave", str(folder), "--undo")
    assert code == 2
    assert "agent 0 has not been asked to leave" in err


def test_admit_a_key_at_several_agents(tmp_path: Path) -> None:
    folders, _ = write_changing(tmp_path, 3)
    key = make_agent_keys()[0]
    assert invoke("admit", key, *map(str, folders))[0] == 0
    assert all(read_admitted(folder) == [key] for folder in folders)
    assert "already" in invoke("admit", key, str(folders[0]))[1]
    for wrong in ("xyz", key[:40]):
        code, _, err = invoke("admit", wrong, str(folders[0]))
        assert code == 2
        assert "public key" in err
    code, _, err = invoke("admit", key, str(folders[0]), str(tmp_path))
    assert code == 2
    assert "is not the folder of an agent" in err


def test_agents_that_stay_the_same_neither_leave_nor_admit(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("".join(f"127.0.0.1:{9000 + k}\n" for k in range(2)))
    assert invoke("shard", "digits", "--agents", "2", "--hosts", str(hosts), "--out", str(tmp_path / "shards"))[0] == 0
    folder = str(tmp_path / "shards" / "agent-0")
    for given in (("leave", folder), ("admit", make_agent_keys()[0], folder)):
        code, _, err = invoke(*given)
        assert code == 2
        assert "evict_after" in err
    code, _, err = invoke("peer", folder, "--address", "127.0.0.1:9009")
    assert code == 2
    assert "--evict-after" in err


@pytest.mark.parametrize(
    "option", [("--consensus", "masked"), ("--encoder", "8"), ("--privacy", "node:epsilon=8,delta=1e-5")]
)
def test_what_counts_on_known_agents_is_refused(option: tuple[str, str], tmp_path: Path) -> None:
    code, _, err = invoke(
        "launch", "digits", "--agents", "3", "--evict-after", "5", *option, "--out", str(tmp_path / "r")
    )
    assert code == 2
    assert "stay the same" in err
    assert not (tmp_path / "r").exists()


def test_status_names_members(tmp_path: Path) -> None:
    folders, _ = write_changing(tmp_path, 3)
    code, out, _ = invoke("status", str(folders[0]), "--json")
    assert code == 0
    assert json.loads(out)["membership"] is None
    assert json.loads(out)["state"] == "not started"
