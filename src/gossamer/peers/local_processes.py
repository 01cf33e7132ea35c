"""Every agent of a deployment as a process on this machine; none outlives its parent.

Each process reads from a pipe to its parent and exits when that closes, so that it ends even if the parent is killed.
"""

import contextlib
import json
import math
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import IO

from gossamer.agents.salts import Secrets
from gossamer.array_types import Ints
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.files import make_private
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.identity import CONTACT_FILE
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.keys import write_secret
from gossamer.peers.progress import PeerReport
from gossamer.peers.protocol.signatures import derive_verify_key
from gossamer.peers.shards.cut_sites import cut_deployment, write_agent
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.shards.sites import SiteShard, is_site, read_site_shard
from gossamer.peers.term_folders import read_log
from gossamer.runs.deployment import Deployment
from gossamer.runs.secret_files import SECRETS_FILE, write_secrets
from gossamer.runs.settings import Settings

OUTSIDE_TIMEOUT = 10.0  # seconds after the end of a run for which agents outside of it may still learn of it


def write_local_shards(
    folder: Path,
    deployment: Deployment,
    settings: Settings,
    secrets: Secrets | None = None,
    fingerprint: str = "",
    graph: DataGraph | None = None,
    owner: Ints | None = None,
    joining: Sequence[int] = (),
) -> list[Path]:
    """Write shards with new keys, for agents on free ports of this machine; each with its own one of the `secrets`. The
    fingerprint is that of the data, and `graph` the data as it was given, for agents that may leave and join; `owner`
    and those that are `joining` later are as in `cut_sites`."""
    m = deployment.num_agents + len(joining)
    keys = [make_curve_keys() for _ in range(m)]
    contacts = [
        Contact(f"127.0.0.1:{port}", public) for port, (public, _) in zip(find_free_ports(m), keys, strict=True)
    ]
    verify_keys = [derive_verify_key(secret) for _, secret in keys]
    folders = []
    given, run = deployment.graph if graph is None else graph, token_hex(8)
    for shard in cut_deployment(
        given, deployment, settings, run, contacts, verify_keys, fingerprint, owner=owner, joining=joining
    ):
        own = folder / f"agent-{shard.membership.agent}"
        write_agent(own, shard)
        write_secret(own / "key.secret", keys[shard.membership.agent][1])
        if secrets is not None and shard.membership.agent in secrets.by_agent:
            state = run_folder(own, shard.membership)
            make_private(state)
            write_secrets(state / SECRETS_FILE, secrets.select([shard.membership.agent]))
        folders.append(own)
    return [folder / f"agent-{agent}" for agent in range(len(folders))]


def move_ports(folders: Sequence[Path]) -> None:
    """Give agents on this machine ports that are free now; nothing else of their shards changes. Where agents have left
    or joined already they keep them: the members have agreed on the addresses."""
    sites = [is_site(folder) for folder in folders]
    shards = [read_site_shard(one) if site else read_shard(one) for one, site in zip(folders, sites, strict=True)]
    states = [run_folder(folder, shard.membership) for folder, shard in zip(folders, shards, strict=True)]
    if any(read_log(state) for state, site in zip(states, sites, strict=True) if site):
        return
    ports = find_free_ports(len(shards))

    def move(agent: int, contact: Contact) -> Contact:
        return replace(contact, address=f"127.0.0.1:{ports[agent]}")

    for folder, shard, state in zip(folders, shards, states, strict=True):
        own = shard.membership
        neighbours = {z: move(z, contact) for z, contact in own.neighbours.items()}
        membership = replace(own, contact=move(own.agent, own.contact), neighbours=neighbours)
        write_agent(folder, replace(shard, membership=membership))
        if isinstance(shard, SiteShard):
            (state / CONTACT_FILE).unlink(missing_ok=True)  # all know the new address: there is nothing to announce


def find_free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on at the moment."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


@dataclass(frozen=True)
class _Running:
    """The process of an agent, and the thread that reads its reports."""

    process: "subprocess.Popen[bytes]"
    errors: "IO[bytes]"
    reader: threading.Thread


class LocalProcesses:
    """The processes of all agents; a context that ends them. An agent that is started again has a new one."""

    def __init__(
        self,
        folders: Sequence[Path],
        record: bool = False,
        evict_after: float | None = None,
        first: int | None = None,
        on_failure: Callable[[int, str], None] = lambda agent, why: None,
    ) -> None:
        """`folders` are those of the agents, by id; the `first` of them begin (None: all). Where agents may leave and
        join, one that fails is reported to `on_failure`, as long as the others can go on without it."""
        self._folders, self._options, self._evict_after = folders, ["--record"] if record else [], evict_after
        self._first, self._on_failure = len(folders) if first is None else first, on_failure
        self.reports: dict[int, PeerReport] = {}  # the last one of each agent that runs, or has ended
        self._running: dict[int, _Running] = {}
        self._threads: list[threading.Thread] = []
        self._lines: queue.Queue[tuple[int, _Running, PeerReport | None]] = queue.Queue()  # None: the process has ended
        self._ended: dict[int, str] = {}  # how agents stand whose process has ended
        self._expected: dict[int, str] = {}  # the same of agents whose process is being ended
        self._finished_at = math.inf

    def __enter__(self) -> "LocalProcesses":
        for agent in range(self._first):
            self.start(agent)
        return self

    def __exit__(self, *reason: object) -> None:
        for one in self._running.values():
            if one.process.poll() is None:
                one.process.terminate()
        for one in self._running.values():
            try:
                one.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
        for thread in self._threads:
            thread.join()
        for one in self._running.values():
            _close(one)

    def start(self, agent: int) -> None:
        """Start the process of an agent that has none."""
        command = [sys.executable, "-m", "gossamer", "peer", str(self._folders[agent]), "--report", "--lifeline"]
        command += [*self._options, "--log-level", "error"]  # stderr is shown if the process fails
        errors = (self._folders[agent] / "errors.log").open("w+b")
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        reader = threading.Thread(target=self._read, args=(agent,), daemon=True)
        self.reports.pop(agent, None)
        self._ended.pop(agent, None)
        self._running[agent] = _Running(process, errors, reader)
        self._threads.append(reader)
        reader.start()

    def kill(self, agent: int) -> None:
        """Kill the process of an agent, without a moment to prepare for it."""
        self._expected[agent] = "gone"
        self._running[agent].process.kill()

    def is_running(self, agent: int) -> bool:
        """Return whether an agent has a process."""
        return agent in self._running

    @property
    def standings(self) -> dict[int, str]:
        """How each agent stands to the run, in one word."""
        found = {}
        for agent in range(len(self._folders)):
            known = self._expected.get(agent, self._ended.get(agent))
            if known is None and agent not in self._running:
                known = "not started"
            report = self.reports.get(agent)
            found[agent] = known or ("starting" if report is None else report.get("standing", "member"))
        return found

    @property
    def members(self) -> dict[int, PeerReport]:
        """The last reports of the agents in the last membership that any agent takes part in."""
        standings = self.standings
        inside = {k: one for k, one in self.reports.items() if standings[k] in ("member", "leaving", "finished")}
        last = max((one.get("membership", 0) for one in inside.values()), default=0)
        return {k: one for k, one in inside.items() if one.get("membership", 0) == last}

    def follow(self) -> Iterator[dict[int, PeerReport]]:
        """Yield the agents' last reports as they come in, until all processes have ended; raise if one fails that the
        others need."""
        while self._running:
            with contextlib.suppress(queue.Empty):
                agent, one, report = self._lines.get(timeout=0.25)
                if report is None:
                    self._end(agent, one)
                elif agent not in self._expected and self._running.get(agent) is one:
                    self.reports[agent] = report
            self._end_outsiders()
            yield self.reports

    def _read(self, agent: int) -> None:
        """Pass on an agent's reports, in a thread: not every system can wait for several pipes."""
        one = self._running[agent]
        assert one.process.stdout is not None
        try:
            for line in one.process.stdout:
                if line.endswith(b"\n"):
                    self._lines.put((agent, one, json.loads(line)))
        finally:
            self._lines.put((agent, one, None))

    def _end(self, agent: int, one: _Running) -> None:
        """Note how an agent stands whose process has ended."""
        code = one.process.wait()
        one.errors.seek(0)
        output = one.errors.read().decode(errors="replace").strip()
        _close(one)
        del self._running[agent]
        standing = self.reports[agent].get("standing", "finished") if agent in self.reports else "gone"
        if agent in self._expected:
            self._ended[agent] = self._expected.pop(agent)
        else:
            self._ended[agent] = standing if code == 0 or standing == "outside" else "gone"
        if self._ended[agent] == "finished":
            self._finished_at = time.monotonic()
        elif self._ended[agent] == "gone":
            self._check(agent, f"agent {agent} ended with code {code}: {output[-2000:] or 'it said nothing'}")

    def _check(self, agent: int, why: str) -> None:
        """Require that the others can go on without an agent that has failed."""
        members = next((one.get("members", []) for one in self.members.values()), [*range(self._first)])
        gone = [k for k in members if self._ended.get(k) == "gone"]
        if self._evict_after is None or (self._evict_after == 0 and gone):
            raise GossamerError(why)
        if 2 * len(gone) >= len(members):
            raise GossamerError(
                f"{why}\n{len(members) - len(gone)} of {len(members)} members are left, no majority that could decide "
                "to go on; gossamer launch --resume starts all again"
            )
        self._on_failure(agent, why)

    def _end_outsiders(self) -> None:
        """End agents that no one answers any more: the run has finished without them."""
        standings = self.standings
        waiting = [standings[agent] in ("starting", "joining", "split") for agent in self._running]
        if time.monotonic() > self._finished_at + OUTSIDE_TIMEOUT and all(waiting):
            for agent, one in self._running.items():
                self._expected[agent] = "outside"
                one.process.terminate()


def _close(one: _Running) -> None:
    for pipe in (one.process.stdin, one.process.stdout, one.errors):
        if pipe is not None:
            pipe.close()
