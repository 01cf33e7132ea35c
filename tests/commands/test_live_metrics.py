"""--metrics of runs that go on: of a simulation in this process, and of peers in processes of their own."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from commands.inside import run

from gossamer.errors import GossamerError
from gossamer.report.live.metrics_client import Samples, parse_samples

LIMIT = 120.0  # seconds for anything that is waited for
FOREVER = "1000000"  # steps


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def scrape(port: int) -> Samples:
    """All metrics, over a plain connection; none where nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), LIMIT) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        return parse_samples(answer.partition(b"\r\n\r\n")[2])
    except (OSError, GossamerError):
        return {}


def wait_for(port: int, name: str, agent: str = "", above: float = 0.0) -> Samples:
    """The metrics as soon as one of them is above a value."""
    deadline = time.monotonic() + LIMIT
    while True:
        found = scrape(port)
        if any(value > above for _, value in found.get((name, agent), ())):
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} was not above {above}: {found.get((name, agent))}")
        time.sleep(0.05)


def test_a_simulation_can_be_scraped_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("metrics", "publisher"):  # nobody rests, however busy the machine is
        monkeypatch.setattr(f"gossamer.report.live.{module}.rest_after", lambda work, share: 0.0)
    [port] = free_ports(1)
    seen: list[Samples] = []
    over = threading.Event()

    def look() -> None:
        try:
            seen.append(wait_for(port, "gossamer_evaluation_step", above=1))
            seen.append(wait_for(port, "gossamer_run_step", above=seen[0]["gossamer_run_step", ""][0][1]))
        finally:
            if not over.is_set():
                os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C ends the run after its step

    small = ("--agents", "3", "--hidden", "4", "--topology", "complete", "--no-baselines", "--steps", FOREVER)
    looks = threading.Thread(target=look)
    looks.start()
    try:
        done = run("train", "digits", *small, "--metrics", f"127.0.0.1:{port}", "--out", "run", cwd=tmp_path)
    finally:
        over.set()
    looks.join(LIMIT)
    assert done.returncode == 130
    assert f"metrics: http://127.0.0.1:{port}/metrics" in done.stderr
    first, then = seen
    assert [labels["state"] for labels, _ in then["gossamer_run_state", ""]] == ["training"]
    assert {agent for name, agent in then if name == "gossamer_agent_step"} == {"0", "1", "2"}
    assert 0 < then["gossamer_evaluation_score", ""][0][1] <= 1
    sent = [dict(labels) for labels, _ in then["gossamer_agent_sent_bytes_total", "0"]]
    assert {one["neighbour"] for one in sent} == {"1", "2"}
    assert {"forward", "backward", "consensus"} <= {one["phase"] for one in sent}
    assert sum(value for _, value in first["gossamer_agent_sent_bytes_total", "0"]) < sum(
        value for _, value in then["gossamer_agent_sent_bytes_total", "0"]
    )


@contextmanager
def peers_of(folder: Path, ports: list[int]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process for each shard, that serves metrics."""
    with (folder / "errors").open("wb") as errors:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "gossamer", "peer", f"shards/agent-{k}", "--metrics", str(port)],
                cwd=folder,
                stdout=errors,
                stderr=errors,
            )
            for k, port in enumerate(ports)
        ]
        try:
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.wait()


@pytest.mark.slow
def test_peers_speak_for_themselves_and_say_who_is_missing(tmp_path: Path) -> None:
    *addresses, first, second = free_ports(4)
    (tmp_path / "hosts").write_text("".join(f"127.0.0.1:{port}\n" for port in addresses))
    small = ("--agents", "2", "--hidden", "4", "--steps", FOREVER, "--topology", "complete")
    cut = run("shard", "digits", *small, "--hosts", "hosts", "--out", "shards", cwd=tmp_path)
    assert cut.returncode == 0, cut.stderr
    asked = ("status", "--metrics", str(first), "--metrics", str(second), "--json")
    with peers_of(tmp_path, [first, second]) as (_, lost):
        wait_for(first, "gossamer_evaluation_step", above=1)
        own = wait_for(first, "gossamer_agent_loss", agent="0")
        assert {agent for name, agent in own if name == "gossamer_agent_step"} == {"0"}
        assert {labels["neighbour"] for labels, _ in own["gossamer_agent_sent_bytes_total", "0"]} == {"1"}
        wait_for(second, "gossamer_evaluation_step", above=1)
        agents = list(map(json.loads, run(*asked, cwd=tmp_path).stdout.splitlines()))
        assert [(one["agent"], one["state"], one["epoch"]) for one in agents] == [
            (0, "training", 1),
            (1, "training", 1),
        ]
        lost.kill()
        lost.wait()
        left = wait_for(first, "gossamer_agent_missing", agent="1")
        assert left["gossamer_run_agents_missing", ""][0][1] == 1
        assert [labels["neighbour"] for labels, _ in left["gossamer_agent_waiting_for", "0"]] == ["1"]
        agents = list(map(json.loads, run(*asked, cwd=tmp_path).stdout.splitlines()))
        assert [one["state"] for one in agents] == ["training", "unreachable"]
        assert agents[0]["waiting_for"] == [1]
