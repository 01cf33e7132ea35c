"""Over a network that delays, loses, reorders, parts and kills, agents end with the bits of an undisturbed run."""

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case
from runtime.network import KILLS, Faults, Network
from runtime.schedules import random_faults

from gossamer.agents import training_step
from gossamer.runtime.settings import Settings, make_settings
from gossamer.runtime.simulation import run_together

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
    assert not any(member.refused["unplanned"] for member in network.members.values())


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
    assert sum(member.refused["old"] for member in network.members.values()) > 0
