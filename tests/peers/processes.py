"""Agents as real processes, forked from one that has imported everything; none survives its test."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from peers.traps import Trap, run

LIMIT = 60.0  # seconds for anything that is waited for
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["gossamer.peers.process", "sympy"])  # which torch imports with the first gradient


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"waited {LIMIT:.0f} s in vain: {what}"
        time.sleep(0.01)


class Agents:
    """The processes of a deployment's agents; a context that ends them all and sees to it that they are gone."""

    def __init__(
        self,
        folders: list[Path],
        namespaces: list[tuple[Path, ...]] | None = None,
        record: bool = False,
        serve: bool = False,
    ) -> None:
        self.folders, self._record, self._serve = folders, record, serve
        self._namespaces = namespaces or [()] * len(folders)
        self._all: list[multiprocessing.process.BaseProcess] = []
        self._current: dict[int, multiprocessing.process.BaseProcess] = {}

    def __enter__(self) -> "Agents":
        return self

    def __exit__(self, *reason: object) -> None:
        for process in self._all:
            with contextlib.suppress(ProcessLookupError):
                if process.pid is not None and process.exitcode is None:
                    os.kill(process.pid, signal.SIGKILL)  # a stopped process too
        for process in self._all:
            process.join(10)
        wait_until(lambda: not any(_exists(process.pid) for process in self._all), "a process is left behind")

    def start(self, agent: int, trap: Trap | None = None, address: str | None = None) -> None:
        folder = self.folders[agent]
        arguments = (folder, trap, folder / "errors.log", self._namespaces[agent], self._record, self._serve, address)
        process = FORKS.Process(target=run, args=arguments)
        process.start()
        self._all.append(process)
        self._current[agent] = process

    def start_all(self, traps: dict[int, Trap] | None = None) -> None:
        for agent in range(len(self.folders)):
            self.start(agent, (traps or {}).get(agent))

    def signal(self, agent: int, number: int) -> None:
        pid = self._current[agent].pid
        assert pid is not None
        os.kill(pid, number)

    def wait_stopped(self, agent: int) -> None:
        stat = Path(f"/proc/{self._current[agent].pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"agent {agent} stops")

    def wait_killed(self, agent: int) -> None:
        assert self._ended(agent) == -signal.SIGKILL, self.said(agent)

    def wait_finished(self, agents: Iterable[int] | None = None) -> None:
        for agent in range(len(self.folders)) if agents is None else agents:
            assert self._ended(agent) == 0, self.said(agent)

    def said(self, agent: int) -> str:
        return f"agent {agent}: {(self.folders[agent] / 'errors.log').read_text()[-2000:]}"

    def _ended(self, agent: int) -> int | None:
        self._current[agent].join(LIMIT)
        return self._current[agent].exitcode


def _exists(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
