"""Over a network that delays, loses, reorders, parts and kills, agents end with the bits of an undisturbed run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case
from runtime.network import KILLS, Faults, Network
from runtime.schedules import random_faults

from gossamer.agents import training_step
from gossamer.errors import GossamerError
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.simulation import run_together
from gossamer.runtime.wire import Status, encode

STEPS = 7


def problem(**settings: object) -> tuple[Case, Settings, np.ndarray]:
    case = make_case(dropout=0.3)
    made = make_settings(
        {"agents": M, "steps": STEPS, "checkpoint_every": 2, "evaluate_every": 3, "update": "momentum", **settings}
    )
    return case, made, (case.combination != 0) & ~np.eye(M, dtype=bool)


def hosts(case: Case, settings: Settings) -> dict:
    how = {"rule": settings.update, "consensus_every": settings.consensus_every}
    return {k: case.host([k], **how) for k in range(M)}


def undisturbed(case: Case, settings: Settings) -> list[dict[str, torch.Tensor]]:
    """Every agent on its own host, in lock step: the same arithmetic, so the same bits."""
    made = list(hosts(case, settings).values())
    for _ in range(settings.steps):
        made = [host for host, _ in run_together([training_step(host) for host in made])]
    return [host.params for host in made]


def check(network: Network, expected: list[dict[str, torch.Tensor]]) -> None:
    for k, params in enumerate(expected):
        for name, part in params.items():
            assert torch.equal(network.finals[k][name], part), f"agent {k}: {name}"


@pytest.mark.parametrize("every", [1, 3, 0])
def test_a_quiet_network_gives_the_bits_of_the_simulation(every: int) -> None:
    case, settings, links = problem(consensus_every=every)
    network = Network(hosts(case, settings), links, settings, Faults(), seed=0)
    network.run()
    check(network, undisturbed(case, settings))
    assert all(set(records) == {0, 3, 6, 7} for records in network.records.values())
    assert not any(member.refused["unplanned"] for member in network.last.values())


@pytest.mark.parametrize("where", KILLS)
def test_an_agent_killed_anywhere_comes_back(where: str) -> None:
    case, settings, links = problem()
    expected, killed = undisturbed(case, settings), 0
    for seed in range(3):
        faults = Faults(kills=2, kill=0.3 if "sav" in where or "epoch" in where else 0.05, where=(where,))
        network = Network(hosts(case, settings), links, settings, faults, seed)
        network.run()
        check(network, expected)
        killed += network.killed[where]
    assert killed


@pytest.mark.parametrize("seed", range(12))
def test_faults_cost_time_and_not_results(seed: int) -> None:
    case, settings, links = problem()
    network = Network(hosts(case, settings), links, settings, random_faults(seed), seed)
    network.run()
    check(network, undisturbed(case, settings))


def test_everyone_stopped_and_started_again_goes_on() -> None:
    """A power cut: all agents lose what they had in memory, at the same moment."""
    case, settings, links = problem()
    network = Network(hosts(case, settings), links, settings, Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    for k in list(network.members):
        network.kill(k)
    network.run()
    check(network, undisturbed(case, settings))
    assert all(disk.number > 1 for disk in network.disks.values())


def test_a_replayed_message_of_an_earlier_epoch_is_refused() -> None:
    case, settings, links = problem()
    network = Network(hosts(case, settings), links, settings, Faults(), seed=0)
    overheard: list = []
    network.overhear = lambda sender, receiver, parts: overheard.append((sender, receiver, parts))
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    network.kill(0)
    network.overhear = None
    while network.members.get(1) is None or network.members[1].epoch < 2:
        network.step()
    for message in overheard:
        network.deliver(*message)
    network.run()
    check(network, undisturbed(case, settings))
    assert sum(member.refused["old"] for member in network.last.values()) > 0


def test_an_agent_cut_off_while_the_others_finish_still_ends() -> None:
    case, settings, links = problem()
    for seconds in (2.0, 8.0, 20.0):
        network = Network(hosts(case, settings), links, settings, Faults(), seed=0)
        while not any(member.finished for member in network.members.values()):
            network.step()
        network.isolate(4, network.now + seconds)
        network.run()
        check(network, undisturbed(case, settings))


@pytest.mark.parametrize("agent", range(M))
def test_an_agent_that_dies_after_it_finished_strands_nobody(agent: int) -> None:
    case, settings, links = problem()
    network = Network(hosts(case, settings), links, settings, Faults(), seed=1)
    while not network.disks[agent].done:
        network.step()
    network.kill(agent)
    network.run()
    check(network, undisturbed(case, settings))


def test_an_agent_alone_after_the_others_left_leaves_too() -> None:
    case, settings, links = problem()
    network = Network(hosts(case, settings), links, settings, Faults(), seed=1)
    network.run()
    network.kill(2)  # it starts again, and nobody is there
    network.run(limit=1000)
    assert network.gone == set(range(M))


def test_a_disk_that_forgot_its_epoch_speaks_anew() -> None:
    case, settings, links = problem()
    network = Network(hosts(case, settings), links, settings, Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    network.disks[3].number = 0
    network.disks[3].checkpoints.clear()
    network.kill(3)
    network.run()
    check(network, undisturbed(case, settings))


def test_a_slow_link_is_not_flooded() -> None:
    """Half a second each way and no loss: the pace adapts, and little is sent twice."""
    case, settings, links = problem(steps=30, checkpoint_every=30, evaluate_every=30)
    network = Network(hosts(case, settings), links, settings, Faults(delay=0.5, steady=True), seed=0)
    sent: list = []
    network.overhear = lambda sender, receiver, parts: sent.append((sender, receiver, parts[0])) if parts[1:] else None
    network.run()
    assert len(sent) < 1.5 * len(set(sent))


@pytest.mark.parametrize(
    ("restorable", "done", "epoch"),
    [
        ({0: ()}, set(), 2),
        ({0: (7,)}, set(), 2),
        ({0: (7, 2)}, set(), 2),
        ({0: (7, 0, 4, 2)}, set(), 2),
        ({0: (7, 0, 99)}, set(), 2),
        ({0: (7, *range(8))}, set(), 2),
        ({9: (7, 0)}, set(), 2),
        ({}, {9}, 2),
        ({}, set(), 2**62),
    ],
)
def test_a_status_that_nobody_would_send_changes_nothing(restorable: dict, done: set, epoch: int) -> None:
    case, settings, links = problem()
    network = Network(hosts(case, settings), links, settings, Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    before = network.disks[0].number
    liar = network.neighbours[0][0]
    parts = [bytes(part) for part in encode(Status(liar, epoch, restorable, frozenset(done)), "run")]
    network.members[0].receive(liar, parts, network.now)
    assert network.members[0].refused["malformed"] == 1
    assert network.disks[0].number == before
    network.run()
    check(network, undisturbed(case, settings))


def test_a_run_that_diverges_says_so() -> None:
    case, settings, links = problem(update="gd")
    made = {k: replace(h, training=replace(h.training, step_size=1e308)) for k, h in hosts(case, settings).items()}
    with pytest.raises(GossamerError, match="has diverged"):
        Network(made, links, settings, Faults(), seed=0).run()
