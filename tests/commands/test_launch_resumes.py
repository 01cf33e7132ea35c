"""An interrupted launch goes on, with its agents or in a simulation, to the bits of one that was not."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commands.inside import run

import gossamer
from gossamer.errors import GossamerError
from gossamer.runs.tensors import read_tensors

pytestmark = pytest.mark.slow
LIMIT = 120.0  # seconds for anything that is waited for
OPTIONS = "launch digits --preset paper --keep best --agents 2 --topology complete --no-baselines --steps 300"


def test_a_launch_goes_on_with_its_agents_or_in_a_simulation(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gossamer", *OPTIONS.split(), "--checkpoint-every", "20", "--out", "run"]
    with (tmp_path / "errors").open("wb") as errors:
        launched = subprocess.Popen(command, cwd=tmp_path, stderr=errors)
    try:
        agents, deadline = tmp_path / "run" / "agents", time.monotonic() + LIMIT
        while len(list(agents.glob("agent-*/run-*/checkpoint-40.*"))) < 2:
            assert time.monotonic() < deadline, (tmp_path / "errors").read_text()
            assert launched.poll() is None, (tmp_path / "errors").read_text()
            time.sleep(0.02)
        launched.send_signal(signal.SIGINT)
        assert launched.wait(LIMIT) == 130
    finally:
        launched.kill()
        launched.wait()
    assert "go on with gossamer launch --resume run" in " ".join((tmp_path / "errors").read_text().split())
    reported = run("report", "run", cwd=tmp_path)  # as far as it is: evaluations are with the agents
    assert reported.returncode == 0, reported.stderr
    page = (tmp_path / "run" / "report.html").read_text()
    assert "gossamer launch --resume run" in page
    assert "Evaluations of the distributed network" in page
    (tmp_path / "run" / "report.html").unlink()
    with pytest.raises(GossamerError, match="is of a launch that has not ended"):
        gossamer.resume(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "simulated")
    for wrong in (["digits"], ["--steps", "400"]):
        refused = run("launch", *wrong, "--resume", "run", cwd=tmp_path)
        assert (refused.returncode, "launch's own settings" in refused.stderr) == (2, True)
    done = run("launch", "--resume", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    other = run("train", "--resume", "simulated", "--json", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    found, expected = (read_tensors(tmp_path / name / "weights.safetensors") for name in ("run", "simulated"))
    for name, part in expected.items():
        assert torch.equal(found[name], part)
    for mask, scores in json.loads(other.stdout)["distributed"].items():
        assert json.loads(done.stdout)["distributed"][mask] == pytest.approx(scores)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(0, 301, 10)]
    assert all(line["disagreement"] is not None and line["stationarity"] is not None for line in lines)
    again = run("launch", "--resume", "run", cwd=tmp_path)
    assert (again.returncode, "is not of a launch with agents that could go on" in again.stderr) == (2, True)
