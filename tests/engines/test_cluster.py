"""Ranks of a torchrun job end with the simulation's weights and predictions; an error of one ends all."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands.inside import run
from engines.forked import run_forked, run_jobs
from engines.ranks import CASES, settings_of
from scipy import sparse

from gossamer.data import load
from gossamer.engines.cluster import job
from gossamer.engines.simulation import start_run
from gossamer.experiments.theory import draw_block_graph
from gossamer.runs.handover import train_stages
from gossamer.runs.observers import Observer
from gossamer.runs.run import Run
from gossamer.runs.settings import make_settings
from gossamer.runs.summaries import measure_final_scores
from gossamer.runs.tensors import read_tensors
from gossamer.runs.training import run_training

RANKS = Path(__file__).parent / "ranks.py"
SMALL = ("digits", "--preset", "paper", "--agents", "4", "--topology", "complete", "--no-baselines", "--hidden", "8",
         "--dtype", "float64")  # fmt: skip


def torchrun(ranks: int, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    """Exit code and output; no process survives."""
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_weights_equal_the_simulations(tmp_path: Path, ranks: int) -> None:
    run_forked(str(RANKS), [str(tmp_path), str(ranks)], tmp_path)
    for number, case in [*enumerate(CASES), ("cut", "gcn, gd"), ("apart", "gcn, gd")]:
        started = start_run(draw_block_graph(), settings_of(case))
        expected = run_training(train_stages(started, lambda name, steps: Observer()))
        _compare(tmp_path / str(number), case, expected)


def _compare(folder: Path, case: str, expected: Run) -> None:
    """Weights, records, scores and predictions that the ranks have left, with those of the simulation."""
    for name, part in read_tensors(folder / "weights.safetensors").items():
        torch.testing.assert_close(part, expected.host.params[name], rtol=0, atol=1e-10)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for found, right in zip(records, expected.history, strict=True):
        assert found["step"] == right["step"]
        for value in ("disagreement", "stationarity"):
            assert found[value] == pytest.approx(right[value], rel=1e-9)
        assert found["test"] == pytest.approx(right["test"], rel=1e-9)
        assert ("roc_auc" in found["test"]) == (case == "ranked")
    if folder.name != "apart":
        scores = json.loads((folder / "scores.json").read_text())
        for mask, right_scores in measure_final_scores(expected).items():
            assert {"roc_auc", "average_precision"} <= set(right_scores)
            assert scores[mask] == pytest.approx(right_scores, rel=1e-9)
    if folder.name == "cut":
        outputs = read_tensors(folder / "predictions.safetensors")["outputs"]
        torch.testing.assert_close(outputs, expected.predict(), rtol=0, atol=1e-10)


def test_a_run_resumes_and_predicts_on_another_number_of_ranks(tmp_path: Path) -> None:
    jobs = [
        (3, ["cluster", *SMALL, "--steps", "12", "--out", "parts"]),
        (2, ["cluster", "--resume", "parts", "--steps", "30"]),
        (2, ["predict", "parts"]),
    ]
    output = run_jobs(jobs, tmp_path)
    given = {"agents": 4, "topology": "complete", "hidden": 8, "dtype": "float64", "steps": 30}
    whole = run_training(start_run(load("digits"), make_settings({"preset": "paper", **given}))).host.params
    parts = read_tensors(tmp_path / "parts" / "weights.safetensors")
    for name, part in whole.items():
        torch.testing.assert_close(parts[name], part, rtol=0, atol=1e-10)
    summary = json.loads((tmp_path / "parts" / "run.json").read_text())
    assert summary["complete"]
    assert summary["step"] == 30
    assert output.count("Predictions of 1797 vertices") == 1
    assert run("predict", "parts", "--out", "one.csv", cwd=tmp_path).returncode == 0
    assert (tmp_path / "parts" / "predictions.csv").read_text() == (tmp_path / "one.csv").read_text()


def _wait_for_checkpoint(job_: "subprocess.Popen[str]", out: Path) -> None:
    deadline = time.monotonic() + 90
    while not (out / "checkpoint.safetensors").is_file():
        assert time.monotonic() < deadline
        assert job_.poll() is None
        time.sleep(0.05)


def test_a_rank_that_dies_is_named_and_a_restart_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    steps = 400
    job_ = torchrun(
        2, "--max-restarts=1", "-m", "gossamer", "cluster", *SMALL,
        "--steps", str(steps), "--checkpoint-every", "50", "--evaluate-every", "200", "--out", str(out),
    )  # fmt: skip
    try:
        _wait_for_checkpoint(job_, out)
        os.kill(_rank(job_.pid, "1"), signal.SIGKILL)
    finally:
        code, output = finish(job_, 200)
    assert code == 0, output
    assert "rank 0 has lost rank 1" in " ".join(output.split()) or "rank 0 was told to end" in output, output
    assert "local_rank: 1" in output  # torchrun's own word
    assert json.loads((out / "run.json").read_text())["step"] == steps


def test_a_rank_that_is_stopped_is_named_by_all_others_in_time(tmp_path: Path) -> None:
    out = tmp_path / "run"
    job_ = torchrun(
        3, "-m", "gossamer", "cluster", *SMALL, "--steps", "1000000", "--checkpoint-every", "20",
        "--evaluate-every", "1000000", "--give-up", "4", "--out", str(out),
    )  # fmt: skip
    try:
        _wait_for_checkpoint(job_, out)
        stopped, began = _rank(job_.pid, "1"), time.monotonic()
        others = [_rank(job_.pid, rank) for rank in ("0", "2")]
        os.kill(stopped, signal.SIGSTOP)
        while not all(_has_ended(one) for one in others):
            assert time.monotonic() < began + 30
            time.sleep(0.05)
        assert time.monotonic() > began + 3
        os.kill(stopped, signal.SIGKILL)  # torchrun would do it after half a minute
    finally:
        code, output = finish(job_, 60)
    assert code != 0
    for rank in (0, 2):
        message = f"rank {rank} and the others have had no sign of life from rank 1 for 4 s"
        assert message in " ".join(output.split()), output


def _has_ended(process: int) -> bool:
    """True also for a process that its parent has not waited for yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _rank(parent: int, rank: str) -> int:
    """The process of a rank among a process's children."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in variables:
            return int(child)
    raise AssertionError("no such rank")


def test_a_mistake_is_reported_once_and_ends_all_ranks(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, output = finish(torchrun(2, "-m", "gossamer", "cluster", "digits", "--agents", "1", "--out", str(out)))
    assert code != 0
    assert " ".join(output.split()).count("2 ranks are more than 1 agents") == 1, output
    assert "gossamer/commands" not in output  # the traceback at the end is torchrun's own
    assert not out.exists()


def test_without_torchrun_it_says_how_to_start(tmp_path: Path) -> None:
    done = run("cluster", "digits", cwd=tmp_path)
    assert done.returncode == 2
    assert "torchrun --nproc-per-node 2 -m gossamer cluster" in " ".join(done.stderr.split())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_ranks_are_equal_in_work_and_none_is_empty(size: int) -> None:
    random = np.random.default_rng(size)
    owner = np.sort(random.integers(0, 7, 500))
    graph = SimpleNamespace(features=np.zeros((500, 4)), num_features=4)
    shared = np.diag(np.ones(6, dtype=np.int64), 1)
    deployment = SimpleNamespace(
        num_agents=7,
        graph=graph,
        assignment=owner,
        shift=sparse.eye_array(500).tocsr(),
        network=SimpleNamespace(num_parameters=10),
        shared_edges=shared + shared.T,
    )
    hosting = job.divide_agents(deployment, size)  # type: ignore[arg-type]
    assert set(hosting) == set(range(size))
    assert (np.abs(np.diff(hosting)) <= 1).all()  # a path of agents is cut into pieces
    work = np.bincount(hosting[owner], minlength=size)
    assert work.max() - work.min() <= 2 * np.bincount(owner).max()
