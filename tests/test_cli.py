"""The command as a user runs it: output, exit codes, and what is left behind; in processes of its own where these
matter."""

import csv
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from commands.inside import run
from safetensors.torch import load_file
from scipy import sparse

from gossamer.cli import COMMANDS, load_command
from gossamer.errors import GossamerWarning

COMMAND = [sys.executable, "-m", "gossamer"]


def gossamer(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1"} | (env or {}),
    )


def test_train_prints_json_and_writes_a_run(tmp_path: Path) -> None:
    done = gossamer(
        "train", "--agents", "4", "--topology", "ring", "--steps", "60", "--json", "--out", "run", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for model in ("distributed", "centralised", "graphless"):
        for mask in ("train", "validation", "test"):
            scores = {"loss", "accuracy", "macro_f1", "micro_f1", "roc_auc", "average_precision"}
            assert set(found[model][mask]) == scores
    assert found["distributed"]["test"]["accuracy"] > 0.8
    assert found["disagreement"] > 0
    for phase in ("forward", "backward", "consensus"):
        assert found["messages"][phase]["rows"] > 0
        assert found["messages"][phase]["bytes"] > 0
    assert found["seconds"] > 0
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    again = run(
        "train", "--agents", "4", "--topology", "ring", "--steps", "60", "--json", "--out", "again", cwd=tmp_path
    )
    first, second = (load_file(tmp_path / name / "weights.safetensors") for name in ("run", "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert json.loads(again.stdout)["graphless"] == found["graphless"]


def test_train_shows_tables_and_predict_writes_every_vertex(tmp_path: Path) -> None:
    done = run(
        "train",
        "digits",
        "--agents",
        "3",
        "--steps",
        "8",
        "--no-baselines",
        "--topology",
        "line",
        "--layers",
        "chebyshev",
        "--order",
        "2",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for words in ("1797 vertices", "distributed", "consensus", "runs/digits-1", "are relayed over agents between"):
        assert words in done.stdout
    predicted = run("predict", "runs/digits-1", "--json", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    with (tmp_path / "runs" / "digits-1" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["vertex"]) for row in rows] == list(range(1797))
    network = load_file(tmp_path / "runs" / "digits-1" / "network.safetensors")
    np.testing.assert_array_equal([int(row["agent"]) for row in rows], network["assignment"].numpy())
    summary = json.loads((tmp_path / "runs" / "digits-1" / "run.json").read_text())["summary"]
    assert json.loads(predicted.stdout)["test"] == summary["distributed"]["test"]


def test_settings_file_and_options_on_top(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('dataset = "digits"\nagents = 3\nsteps = 5\nbaselines = false\nseed = 7\n')
    done = run("train", "settings.toml", "--steps", "2", "--out", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert (settings["agents"], settings["steps"], settings["seed"]) == (3, 2, 7)


def test_one_agent_is_the_centralised_model(tmp_path: Path) -> None:
    done = run("train", "--agents", "1", "--steps", "20", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["distributed"] == found["centralised"]
    assert found["messages"]["total_bytes"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "cira"], "did you mean 'cora'?"),
        (["train", "--agents", "0"], "agents = 0: input should be greater than or equal to 1"),
        (["train", "--agents", "5000"], "expected 1 to 1797 agents"),
        (["train", "absent.toml"], "cannot read absent.toml"),
        (["train", "--stepsize", "1"], "--step-size"),
        (["train", "--lr", "0.1"], "No such option: --lr; did you mean --step-size?"),
        (["train", "--no-standardize"], "No such option: --no-standardize; did you mean --no-standardise?"),
        (["launch", "--num-epochs=3"], "No such option: --num-epochs; did you mean --steps?"),
        (["train", "--device", "cuda"], "as many threads as --threads says"),
        (["train", "--topology", "stair"], "star"),
        (["train", "--gap", "0"], "gap = 0.0: input should be greater than 0"),
        (["train", "--keep-links", "1.5"], "keep_links = 1.5: input should be less than or equal to 1"),
        (["train", "--compress", "nonsense"], "expected a compression among none, power:RANK"),
        (["train", "--assignment", "nearest"], "needs vertex positions"),
        (["train", "--resume", "nowhere"], "nowhere is not a run directory"),
        (["train", "--resume", "x", "--seed", "1"], "only --steps may be given"),
        (["train", "--out", "taken"], "taken exists and is not an empty folder"),
        (["predict", "nowhere"], "nowhere is not a run directory"),
        (["train", "cora"], "download"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, where an error that no command expects is raised again."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    # An address that nothing answers on: a data set that is not here cannot be fetched.
    monkeypatch.setenv("GOSSAMER_DATA", "")
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"taken", "cache"}


def test_a_mistake_is_one_line_and_an_exit_code_of_the_process(tmp_path: Path) -> None:
    done = gossamer("train", "cira", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no data set, .npz file or folder of CSV tables called 'cira'; did you mean")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::gossamer.GossamerWarning")  # of what is run in this process
def test_a_warning_is_shown_and_does_not_stop_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "two-parts"
    folder.mkdir()
    (folder / "features.csv").write_text("vertex,f\n" + "".join(f"v{i},{i % 2}\n" for i in range(8)))
    (folder / "edges.csv").write_text("source,target\nv0,v1\nv1,v2\nv2,v3\nv4,v5\nv5,v6\nv6,v7\n")
    splits = ["train", "train", "validation", "test"] * 2
    (folder / "labels.csv").write_text(
        "vertex,label,split\n" + "".join(f"v{i},{'even' if i % 2 == 0 else 'odd'},{splits[i]}\n" for i in range(8))
    )
    done = gossamer(
        "train", "two-parts", "--agents", "2", "--topology", "complete", "--steps", "3", "--no-baselines", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "warning: the data graph is disconnected: 2 components; a vertex's output depends on its own alone\n" in (
        done.stderr
    )
    assert "--topology" not in done.stderr
    run("predict", "runs/two-parts-1", cwd=tmp_path)
    text = (tmp_path / "runs" / "two-parts-1" / "predictions.csv").read_text()
    assert text.startswith("vertex,agent,class,probability\nv0,")
    assert ",even," in text or ",odd," in text


def test_a_users_file_is_found_again_from_another_folder(tmp_path: Path) -> None:
    features = np.tile(np.eye(2), (4, 1))
    ring = np.roll(np.eye(8), 1, axis=1)
    adjacency = sparse.csr_array(ring + ring.T)
    parts = {f"adj_matrix.{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "mine.npz", **parts, features=features, labels=np.arange(8) % 2, train_idx=[0, 1],
             val_idx=[2, 3], test_idx=[4, 5, 6, 7])  # fmt: skip
    (tmp_path / "elsewhere").mkdir()
    done = run("train", "mine.npz", "--agents", "2", "--steps", "3", "--no-baselines", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    predicted = run("predict", "../run", cwd=tmp_path / "elsewhere")
    assert predicted.returncode == 0, predicted.stderr
    resumed = run("train", "--resume", "../run", "--steps", "5", cwd=tmp_path / "elsewhere")
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.filterwarnings("ignore::gossamer.GossamerWarning")  # of what is run in this process
def test_a_graph_that_is_no_perfect_one_is_taken_with_a_line_for_each_change(tmp_path: Path) -> None:
    """Directed edges, labels from 1 on and no validation vertex; the run finds its data again."""
    adjacency = sparse.csr_array(np.roll(np.eye(9), 1, axis=1))
    parts = {f"adj_matrix.{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "mine.npz", **parts, features=np.tile(np.eye(3), (3, 1)), labels=np.tile([10, 20, 30], 3),
             train_idx=range(6), val_idx=np.zeros(0, dtype=int), test_idx=[6, 7, 8])  # fmt: skip
    given = ("train", "mine.npz", "--agents", "2", "--steps", "2", "--no-baselines", "--out", "run")
    refused = run(*given, cwd=tmp_path)
    assert refused.returncode == 2
    assert "asymmetric weights" in refused.stderr
    assert "--symmetrise" in refused.stderr
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", GossamerWarning)
        done = run(*given, "--symmetrise", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    texts = [str(warning.message) for warning in told]
    assert sum(text.startswith("the labels 10, 20, 30 are now classes 0 to 2") for text in texts) == 1, texts
    assert sum(text.startswith("the validation mask is empty") for text in texts) == 1, texts
    assert "nan" not in done.stdout
    assert run("train", "--resume", "run", "--steps", "3", cwd=tmp_path).returncode == 0
    assert run("predict", "run", cwd=tmp_path).returncode == 0
    with (tmp_path / "run" / "predictions.csv").open() as file:
        assert {row["class"] for row in csv.DictReader(file)} <= {"10", "20", "30"}


def test_ctrl_c_keeps_what_is_done_and_resume_gives_the_same_bits(tmp_path: Path) -> None:
    options = ["--agents", "3", "--steps", "3000", "--no-baselines", "--checkpoint-every", "50"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(
        [*COMMAND, "train", *options, "--out", "run"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        checkpoint = tmp_path / "run" / "checkpoint.safetensors"
        while not checkpoint.exists() and running.poll() is None:
            signal.sigtimedwait([], 0.05)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, errors
    assert "gossamer train --resume run" in errors
    stopped = json.loads((tmp_path / "run" / "run.json").read_text())
    assert 50 <= stopped["step"] < 3000
    assert stopped["complete"] is False
    steps = str(stopped["step"] + 40)
    assert run("train", "--resume", "run", "--steps", steps, "--json", cwd=tmp_path).returncode == 0
    whole = ["--agents", "3", "--steps", steps, "--no-baselines"]
    assert run("train", *whole, "--out", "whole", "--json", cwd=tmp_path).returncode == 0
    first, second = (load_file(tmp_path / name / "weights.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    again = run("train", "--resume", "run", "--steps", steps, cwd=tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["train", "--help"],
        ["predict", "--help"],
        ["topology", "--help"],
        ["reproduce", "--help"],
        ["--version"],
    ],
)
def test_help(arguments: list[str], tmp_path: Path) -> None:
    """In this process; test_start.py starts one for every command."""
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_flows_to_the_width_of_the_terminal(name: str) -> None:
    paragraphs = (load_command(name).help or "").split("\n\n")
    assert all(paragraphs)
    assert not [paragraph for paragraph in paragraphs if "\n" in paragraph]


def test_without_a_terminal_every_evaluation_is_a_line_on_standard_error(tmp_path: Path) -> None:
    arguments = ("digits", "--agents", "3", "--topology", "line", "--steps", "20", "--evaluate-every", "10", "--json")
    done = run("train", *arguments, "--no-baselines", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    lines = [line for line in done.stderr.splitlines() if " distributed: step " in line]
    assert [line.split(" step ")[1].split(",")[0] for line in lines] == ["0 of 20", "10 of 20", "20 of 20"]
    assert all("loss" in line and "validation accuracy" in line for line in lines)


def test_launch_without_a_terminal_writes_lines(tmp_path: Path) -> None:
    arguments = ("digits", "--agents", "2", "--topology", "line", "--steps", "10", "--evaluate-every", "5", "--json")
    done = gossamer("launch", *arguments, "--score", "roc_auc", "--no-baselines", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["score"] == "roc_auc_binned"
    assert f" 2 agents: step 10 of 10, loss {last['train']['loss']:.4f}, " in done.stderr
    assert f"validation roc_auc_binned {last['validation']['roc_auc_binned']:.4f}\n" in done.stderr
    for mask in ("train", "validation", "test"):
        for name in ("accuracy", "macro_f1", "micro_f1"):
            assert last[mask][name] == pytest.approx(found["distributed"][mask][name], rel=1e-12)
        for name in ("roc_auc", "average_precision"):
            assert last[mask][f"{name}_binned"] == pytest.approx(found["distributed"][mask][name], abs=0.01)
