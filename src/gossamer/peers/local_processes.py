"""Every agent of a deployment as a process on this machine; none outlives its parent.

Each process reads from a pipe to its parent and exits when that closes, so that it ends even if the parent is killed.
"""

import contextlib
import json
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from gossamer.agents.salts import Secrets
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.files import make_private
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.curve import make_curve_keys
from gossamer.peers.network.keys import write_secret
from gossamer.peers.progress import PeerReport
from gossamer.peers.protocol.signatures import derive_verify_key
from gossamer.peers.shards.cut_sites import cut_deployment, write_agent
from gossamer.peers.shards.shard import read_shard, write_shard
from gossamer.runs.deployment import Deployment
from gossamer.runs.secret_files import SECRETS_FILE, write_secrets
from gossamer.runs.settings import Settings


def write_local_shards(
    folder: Path,
    deployment: Deployment,
    settings: Settings,
    secrets: Secrets | None = None,
    fingerprint: str = "",
    graph: DataGraph | None = None,
) -> list[Path]:
    """Write shards with new keys, for agents on free ports of this machine; each with its own one of the `secrets`. The
    fingerprint is that of the data, and `graph` the data as it was given, for agents that may leave and join."""
    m = deployment.num_agents
    keys = [make_curve_keys() for _ in range(m)]
    contacts = [
        Contact(f"127.0.0.1:{port}", public) for port, (public, _) in zip(find_free_ports(m), keys, strict=True)
    ]
    verify_keys = [derive_verify_key(secret) for _, secret in keys]
    folders = []
    given = deployment.graph if graph is None else graph
    for shard in cut_deployment(given, deployment, settings, token_hex(8), contacts, verify_keys, fingerprint):
        own = folder / f"agent-{shard.membership.agent}"
        write_agent(own, shard)
        write_secret(own / "key.secret", keys[shard.membership.agent][1])
        if secrets is not None:
            state = run_folder(own, shard.membership)
            make_private(state)
            write_secrets(state / SECRETS_FILE, secrets.select([shard.membership.agent]))
        folders.append(own)
    return folders


def move_ports(folders: list[Path]) -> None:
    """Give agents on this machine ports that are free now; nothing else of their shards changes."""
    shards = [read_shard(folder) for folder in folders]
    ports = find_free_ports(len(shards))

    def move(agent: int, contact: Contact) -> Contact:
        return replace(contact, address=f"127.0.0.1:{ports[agent]}")

    for folder, shard in zip(folders, shards, strict=True):
        own = shard.membership
        neighbours = {z: move(z, contact) for z, contact in own.neighbours.items()}
        membership = replace(own, contact=move(own.agent, own.contact), neighbours=neighbours)
        write_shard(folder, replace(shard, membership=membership))


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


class LocalProcesses:
    """The processes of all agents; a context that ends them."""

    def __init__(self, folders: list[Path], record: bool = False) -> None:
        self._options = ["--record"] if record else []
        self.reports: dict[int, PeerReport] = {}  # the last one of each agent
        self._errors = [(folder / "errors.log").open("w+b") for folder in folders]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._lines: queue.Queue[tuple[int, PeerReport | None]] = queue.Queue()  # None: the process has ended
        self._folders = folders

    def __enter__(self) -> "LocalProcesses":
        for folder, errors in zip(self._folders, self._errors, strict=True):
            command = [sys.executable, "-m", "gossamer", "peer", str(folder), "--report", "--lifeline"]
            command += [*self._options, "--log-level", "error"]  # stderr is shown if the process fails
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
            )
        for agent in range(len(self._processes)):
            self._readers.append(threading.Thread(target=self._read, args=(agent,), daemon=True))
            self._readers[-1].start()
        return self

    def __exit__(self, *reason: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for thread in self._readers:
            thread.join()
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for file in self._errors:
            file.close()

    def follow(self) -> Iterator[dict[int, PeerReport]]:
        """Yield the agents' last reports as they come in, until all processes have ended; raise if one fails."""
        running = len(self._processes)
        while running:
            with contextlib.suppress(queue.Empty):
                agent, report = self._lines.get(timeout=0.5)
                if report is None:
                    self._check(agent)
                    running -= 1
                else:
                    self.reports[agent] = report
            yield self.reports

    def _read(self, agent: int) -> None:
        """Pass on an agent's reports, in a thread: not every system can wait for several pipes."""
        output = self._processes[agent].stdout
        assert output is not None
        try:
            for line in output:
                if line.endswith(b"\n"):
                    self._lines.put((agent, json.loads(line)))
        finally:
            self._lines.put((agent, None))

    def _check(self, agent: int) -> None:
        code = self._processes[agent].wait()
        if code != 0:
            self._errors[agent].seek(0)
            output = self._errors[agent].read().decode(errors="replace").strip()
            raise GossamerError(f"agent {agent} ended with code {code}: {output[-2000:] or 'it said nothing'}")
