"""Over a network that delays, loses, reorders, parts and kills, agents end with the bits of an undisturbed run."""

from collections import Counter

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case
from runtime.network import KILLS, Faults, Network

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


@pytest.mark.parametrize("seed", range(20))
def test_faults_cost_time_and_not_results(seed: int) -> None:
    case, settings, links = problem()
    expected = undisturbed(case, settings)
    faults = Faults(drop=0.1, delay=0.03, kills=3, kill=0.02, partition=1.0)
    network = Network(hosts(case, settings), links, settings, faults, seed)
    network.run()
    check(network, expected)


def test_every_kind_of_kill_happens() -> None:
    case, settings, links = problem()
    expected, killed = undisturbed(case, settings), Counter()
    for seed in range(40):
        network = Network(hosts(case, settings), links, settings, Faults(kills=3, kill=0.05), seed)
        network.run()
        check(network, expected)
        killed += network.killed
    print(dict(killed))
    assert set(killed) == set(KILLS)
