"""Four real processes and everything that can happen to them: it costs time, and the weights end at the same bits."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from io import StringIO
from pathlib import Path

import pytest
import torch
from peers.harness import M, check, deployed, simulated, state_folder, weights
from peers.processes import Agents, wait_until
from peers.proxy import Proxy
from peers.traps import STEP, Action, Moment, Trap
from rich.console import Console

from gossamer.peers.local_processes import write_local_shards
from gossamer.peers.progress import STATUS_FILE
from gossamer.peers.shards.shard import Shard, read_shard, write_shard
from gossamer.peers.status import read_status
from gossamer.report.agent_tables import status_table

pytestmark = pytest.mark.slow
VICTIM = 2
AWAY = 8.0  # seconds, longer than ZeroMQ's heartbeats wait
SETTINGS = {"steps": 2 * STEP, "checkpoint_every": STEP // 2, "evaluate_every": STEP}
Weights = list[dict[str, torch.Tensor]]


class Fault(Enum):
    KILLED_BEFORE_SENDING = "an agent dies before it sends"
    KILLED_BETWEEN_PHASES = "an agent dies between the forward and the backward pass"
    KILLED_DURING_CONSENSUS = "an agent dies when one neighbour has its weights and the other has not"
    KILLED_WHILE_CHECKPOINTING = "an agent dies with half a checkpoint on its disk"
    STOPPED = "an agent does nothing for longer than the heartbeats wait"
    CONNECTION_RESET = "the connections between two neighbours are reset, again and again for a second"
    BLACKHOLE = "nothing passes between two neighbours until they have finished, and nobody says so"
    PARTITION = "two halves of the network are without a link for longer than the heartbeats wait"
    POWER_CUT = "all agents die at once"


KILLED = {
    Fault.KILLED_BEFORE_SENDING: Moment.BEFORE_SENDING,
    Fault.KILLED_BETWEEN_PHASES: Moment.BETWEEN_PHASES,
    Fault.KILLED_DURING_CONSENSUS: Moment.DURING_CONSENSUS,
    Fault.KILLED_WHILE_CHECKPOINTING: Moment.WHILE_CHECKPOINTING,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """The final weights of the same processes without a fault, which are those of the simulation."""
    deployment, settings = deployed(**SETTINGS)
    folders = write_local_shards(tmp_path_factory.mktemp("undisturbed"), deployment, settings)
    with Agents(folders) as agents:
        agents.start_all()
        agents.wait_finished()
    check(folders, simulated(deployment, settings))
    assert epochs(folders) == [1] * M
    return [weights(folder) for folder in folders]


def epochs(folders: list[Path]) -> list[int]:
    return [int((state_folder(folder) / "epoch").read_text()) for folder in folders]


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_the_weights_end_at_the_same_bits(tmp_path: Path, undisturbed: Weights, fault: Fault) -> None:
    folders = write_local_shards(tmp_path, *deployed(**SETTINGS))
    if fault in KILLED:
        killed(folders, KILLED[fault])
    elif fault == Fault.STOPPED:
        stopped(folders)
    elif fault == Fault.POWER_CUT:
        power_cut(folders)
    elif fault == Fault.PARTITION:
        partition(folders)
    else:
        between_two(folders, fault)
    for folder, expected in zip(folders, undisturbed, strict=True):
        found = weights(folder)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], part) for name, part in expected.items())
    went_back = fault in KILLED or fault == Fault.POWER_CUT
    assert all((epoch > 1) == went_back for epoch in epochs(folders)), epochs(folders)


def killed(folders: list[Path], moment: Moment) -> None:
    with Agents(folders) as agents:
        agents.start_all({VICTIM: Trap(moment, Action.DIE, folders[VICTIM])})
        agents.wait_killed(VICTIM)
        halves = list(state_folder(folders[VICTIM]).glob(f".checkpoint-{STEP}.*"))
        assert len(halves) == (moment == Moment.WHILE_CHECKPOINTING)
        agents.start(VICTIM)
        agents.wait_finished()


def stopped(folders: list[Path]) -> None:
    with Agents(folders) as agents:
        agents.start_all({VICTIM: Trap(Moment.BEFORE_SENDING, Action.STOP, folders[VICTIM])})
        agents.wait_stopped(VICTIM)
        time.sleep(AWAY)
        agents.signal(VICTIM, signal.SIGCONT)
        agents.wait_finished()


def power_cut(folders: list[Path]) -> None:
    with Agents(folders) as agents:
        start_and_hold(agents)
        for agent in range(M):
            agents.signal(agent, signal.SIGKILL)
        for agent in range(M):
            agents.wait_killed(agent)
        agents.start_all()
        agents.wait_finished()


def start_and_hold(agents: Agents) -> None:
    """All agents started, and the victim held at its moment until it is let go."""
    folder = agents.folders[VICTIM]
    agents.start_all({VICTIM: Trap(Moment.BEFORE_SENDING, Action.WAIT, folder)})
    wait_until((folder / "reached").exists, "the training reaches its moment")


def let_go(agents: Agents) -> None:
    (agents.folders[VICTIM] / "go").touch()


def between_two(folders: list[Path], fault: Fault) -> None:
    """The victim and a neighbour know each other by the addresses of two proxies."""
    neighbour = (VICTIM + 1) % M
    with ExitStack() as stack:
        proxies = []
        for here, there in ((VICTIM, neighbour), (neighbour, VICTIM)):
            port = int(read_shard(folders[there]).membership.contact.address.split(":")[1])
            proxies.append(stack.enter_context(Proxy(port)))
            readdress(folders[here], {there: f"127.0.0.1:{proxies[-1].port}"})
        agents = stack.enter_context(Agents(folders))
        start_and_hold(agents)
        for proxy in proxies:
            (proxy.reset if fault == Fault.CONNECTION_RESET else proxy.block)(True)
        let_go(agents)
        if fault == Fault.CONNECTION_RESET:
            time.sleep(1.0)
            assert not (state_folder(folders[VICTIM]) / "done").exists()  # it did wait for its neighbour
        else:
            ends = [state_folder(folders[k]) for k in (VICTIM, neighbour)]
            wait_until(lambda: all(find_detours(state) for state in ends), "both ends take a detour")
            status = read_status(folders[VICTIM], time.time())
            assert status["detours"] == {str(neighbour): [1, 0]}  # the other way around the ring
            table = StringIO()
            Console(width=100, file=table).print(status_table([status]))
            assert f"The link of agents {VICTIM} and {neighbour} is down; " in table.getvalue()
            wait_until(lambda: all((state / "done").is_file() for state in ends), "both ends finish")
        for proxy in proxies:
            proxy.reset(False)
            proxy.block(False)
        agents.wait_finished()
        assert all((proxy.resets > 0) == (fault == Fault.CONNECTION_RESET) for proxy in proxies)


def find_detours(state: Path) -> dict[str, list[int]]:
    """The detours in an agent's last report."""
    detours: dict[str, list[int]] = json.loads((state / STATUS_FILE).read_text())["detours"]
    return detours


def partition(folders: list[Path]) -> None:
    """Agents 0 and 1 in one network namespace, 2 and 3 in another, and a virtual cable between them."""
    with cable() as (namespaces, set_cable):
        addresses = {k: f"10.77.0.{1 + k // 2}:{5000 + k}" for k in range(M)}
        for folder in folders:
            readdress(folder, addresses)
        with Agents(folders, [namespaces[k // 2] for k in range(M)]) as agents:
            start_and_hold(agents)
            set_cable("down")
            let_go(agents)
            time.sleep(AWAY)
            assert not any((state_folder(folder) / "done").exists() for folder in folders)
            set_cable("up")
            agents.wait_finished()


def readdress(folder: Path, addresses: dict[int, str]) -> None:
    """Change where a shard's agent listens and finds its neighbours."""
    shard: Shard = read_shard(folder)
    before = shard.membership
    mine = replace(before.contact, address=addresses.get(before.agent, before.contact.address))
    others = {z: replace(one, address=addresses.get(z, one.address)) for z, one in before.neighbours.items()}
    write_shard(folder, replace(shard, membership=replace(before, contact=mine, neighbours=others)))


@contextmanager
def cable() -> Iterator[tuple[list[tuple[Path, ...]], Callable[[str], None]]]:
    """Two network namespaces in a user namespace of their own, and a cable between them that can be pulled."""
    with ExitStack() as stack:

        def hold(*command: str) -> int:
            process = subprocess.Popen([*command, "sleep", "600"], stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process.pid

        def within(holder: int, *command: str) -> None:
            subprocess.run(["nsenter", "-t", str(holder), "-U", "-n", "--preserve-credentials", *command],
                           check=True, capture_output=True, text=True, timeout=10)  # fmt: skip

        def ready(holder: int) -> bool:
            own, mine = Path(f"/proc/{holder}/ns/net"), Path("/proc/self/ns/net")
            return own.readlink() != mine.readlink() and Path(f"/proc/{holder}/comm").read_text() == "sleep\n"

        try:
            subprocess.run(["unshare", "-rn", "true"], check=True, capture_output=True, text=True, timeout=10)
            left = hold("unshare", "-rn")
            wait_until(lambda: ready(left), "a namespace")
            right = hold("nsenter", "-t", str(left), "-U", "-n", "--preserve-credentials", "unshare", "-n")
            wait_until(lambda: ready(right), "a namespace")
            within(left, "ip", "link", "add", "left", "type", "veth", "peer", "name", "right")
            within(left, "ip", "link", "set", "right", "netns", str(right))
            for holder, name, address in ((left, "left", "10.77.0.1/24"), (right, "right", "10.77.0.2/24")):
                within(holder, "ip", "link", "set", "lo", "up")
                within(holder, "ip", "address", "add", address, "dev", name)
                within(holder, "ip", "link", "set", name, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', None) or error}")
        user = Path(f"/proc/{left}/ns/user")
        spaces: list[tuple[Path, ...]] = [(user, Path(f"/proc/{holder}/ns/net")) for holder in (left, right)]
        yield spaces, lambda state: within(left, "ip", "link", "set", "left", state)
