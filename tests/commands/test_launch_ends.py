"""However `gossamer launch` ends, none of its processes is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
LIMIT = 120.0  # seconds for anything that is waited for
COMMAND = "-m gossamer launch digits --preset paper --agents 2 --topology complete --no-baselines --out run"
LAUNCH = [sys.executable, *COMMAND.split()]


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A launch in a process group of its own, whose agents train and would go on for hours."""
    with (tmp_path / "errors").open("wb") as errors:
        command = [*LAUNCH, "--steps", "1000000"]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=errors, start_new_session=True)
    try:
        agents = [tmp_path / "run" / "agents" / f"agent-{k}" for k in range(2)]
        wait_until(lambda: all(list(agent.glob("run-*/checkpoint-*")) for agent in agents), "the agents train")
        assert process.poll() is None
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


def nobody_in(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("number", "to_all", "code"),
    [
        (signal.SIGINT, False, 130),
        (signal.SIGINT, True, 130),  # as a terminal sends Ctrl-C
        (signal.SIGTERM, False, -signal.SIGTERM),
        (signal.SIGKILL, False, -signal.SIGKILL),
    ],
)
def test_a_launch_that_is_ended_ends_its_agents(
    launched: subprocess.Popen[bytes], number: signal.Signals, to_all: bool, code: int
) -> None:
    (os.killpg if to_all else os.kill)(launched.pid, number)
    assert launched.wait(LIMIT) == code
    wait_until(lambda: nobody_in(launched.pid), "the agents end")


def test_an_agent_that_is_killed_ends_the_launch_and_is_named(
    launched: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    os.kill(agent_of(launched.pid, 1), signal.SIGKILL)
    assert launched.wait(LIMIT) == 2
    assert "agent 1 ended with code -9" in " ".join((tmp_path / "errors").read_text().split())
    wait_until(lambda: nobody_in(launched.pid), "the agents end")


def agent_of(group: int, agent: int) -> int:
    """The process of an agent, found by its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # one that has just ended
            if os.getpgid(int(path.parent.name)) == group and f"agents/agent-{agent}\0" in path.read_text():
                return int(path.parent.name)
    raise AssertionError(f"agent {agent} does not run")


def test_what_an_agent_says_when_it_fails_is_shown(tmp_path: Path) -> None:
    command = [*LAUNCH, "--update", "gd", "--step-size", "1e6", "--weight-decay", "1", "--steps", "50"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, told = process.communicate(timeout=LIMIT)
        assert process.returncode == 2
        told = " ".join(told.split())
        assert "ended with code 2" in told
        assert "the run has diverged" in told
        assert nobody_in(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
