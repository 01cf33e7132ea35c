"""Numbers that no honest agent sends are refused with their sender's name; whatever trains passes; what diverges is not
kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peers.byzantine import ByzantineAgent
from peers.disks import FakeDisk
from peers.network import RUN, Faults, Network
from peers.problems import M, Problem, make_problem, problem
from peers.schedules import check

from gossamer.agents import Outbox, Phase
from gossamer.agents.quantisation import Quantiser
from gossamer.data import make_graph
from gossamer.errors import DivergedError, GossamerError
from gossamer.peers.checkpoints import CheckpointStore
from gossamer.peers.program import train_from
from gossamer.peers.protocol.magnitudes import (
    GROWTH_FLOOR,
    GROWTH_LIMIT,
    MAGNITUDE_LIMIT,
    MagnitudeBounds,
    check_checkpoint,
)
from gossamer.peers.protocol.wire import Frame, RefusedError, encode
from gossamer.runs.deployment import make_deployment
from gossamer.runs.settings import make_settings

CONSENSUS = Outbox(Phase.CONSENSUS, 0, {}, {})
FORWARD = Outbox(Phase.FORWARD, 0, {}, {})


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "momentum", "step_size": 3.0, "topology": "ring"},
        {"order": 2, "step_size": 1.0},
        {"layers": "chebyshev", "order": 2, "step_size": 1.0, "consensus_every": 3},
        {"update": "adam", "step_size": 1.0},
        {"compress": "power:1,bits=8", "track": True, "topology": "ring", "step_size": 1.0},
        {"compress": "choco:bits=8", "step_size": 1.0},
        {"compress": "choco:bits=4", "track": True},
        {"compress": "choco:topk=0.3", "consensus_every": 3},
        {"boundary_bits": 8},
    ],
    ids=str,
)
def test_a_training_with_any_setting_passes(changes: dict[str, Any]) -> None:
    network = Network(problem(dtype="float32", **changes), Faults(), seed=0)
    network.run()
    check(network)
    assert not any(member.refused["too large"] for member in network.last.values())


def regression(scale: float, **changes: Any) -> Problem:
    """Real targets of some size on three agents with vertices, and a fourth without."""
    random, owner = np.random.default_rng(0), np.repeat(np.arange(M - 1), 4)
    n = len(owner)
    graph = make_graph(
        "large", np.array([(i, i + 1) for i in range(n - 1)]), random.standard_normal((n, 4)),
        scale * random.standard_normal((n, 1)), train=owner != 1, validation=owner == 1, test=owner == 1,
    )  # fmt: skip
    settings = make_settings(
        {"preset": "paper", "dataset": "large", "agents": M, "topology": "line", "steps": 20, "hidden": (), "order": 2,
         "checkpoint_every": 5, "evaluate_every": 10, **changes}
    )  # fmt: skip
    deployment = make_deployment(graph, settings, assignment=owner)
    return make_problem(deployment, settings, [])


@pytest.mark.parametrize(("scale", "every"), [(1.0, 1), (1e4, 1), (1e7, 1), (1e7, 5)])
def test_a_regression_with_large_targets_passes(scale: float, every: int) -> None:
    network = Network(regression(scale, step_size=0.02, consensus_every=every), Faults(), seed=0)
    network.run()
    first, last = ([records[t]["train"] for records in network.records.values()] for t in (0, 20))
    assert sum(sums[0] for sums in last) < 0.8 * sum(sums[0] for sums in first)  # it learns


def test_a_jump_between_two_consensuses_is_bounded_and_the_first_is_free() -> None:
    bounds = MagnitudeBounds()
    bounds.check_incoming(CONSENSUS, 1, 0.9 * MAGNITUDE_LIMIT)  # what is known of agent 1 grows with it
    bounds.check_incoming(CONSENSUS, 2, 1e-9)
    bounds.check_incoming(CONSENSUS, 2, 0.9 * GROWTH_LIMIT * GROWTH_FLOOR)
    bounds.check_incoming(CONSENSUS, 2, 1.0)
    with pytest.raises(RefusedError, match="too large"):
        bounds.check_incoming(CONSENSUS, 2, 1.1 * GROWTH_LIMIT * GROWTH_FLOOR)
    bounds.check_incoming(FORWARD, 2, 1.1 * GROWTH_LIMIT * GROWTH_FLOOR)
    with pytest.raises(RefusedError, match=r"too large: 1\.1e\+12 in a forward message"):
        bounds.check_incoming(FORWARD, 2, 1.1 * MAGNITUDE_LIMIT)
    bounds.check_outgoing(CONSENSUS, 2, 1e5)  # this agent's own weights are as large
    bounds.check_incoming(CONSENSUS, 2, 1.1 * GROWTH_LIMIT * GROWTH_FLOOR)
    assert bounds.greatest == (0.9 * MAGNITUDE_LIMIT, 1, "consensus")


def test_an_agent_does_not_send_what_others_refuse() -> None:
    """Whatever passes at the sender passes at the receiver, which knows more."""
    sender, receiver = MagnitudeBounds(), MagnitudeBounds()
    for size in (1.0, 1e9, 1e3, 9e8, 1e12, 1e6):
        sender.check_outgoing(CONSENSUS, 1, size)
        receiver.check_incoming(CONSENSUS, 0, size)
    for exchange, size in ((CONSENSUS, 1.1e12), (FORWARD, 1.1e12), (FORWARD, float("nan")), (FORWARD, float("inf"))):
        with pytest.raises(DivergedError):
            sender.check_outgoing(exchange, 1, size)
    sender.check_outgoing(CONSENSUS, 1, 1.0)
    with pytest.raises(DivergedError, match="grew from"):
        sender.check_outgoing(CONSENSUS, 1, 2e9)


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_codes_are_measured_by_their_scales(bits: int) -> None:
    rounding = Quantiser(bits)
    rows = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 1e5
    largest = rounding.bound_magnitude(rounding.encode(rows))
    assert rows.abs().max() <= largest < 1.3 * rows.abs().max()
    assert rounding.bound_magnitude(torch.full((2, 9), 255, dtype=torch.uint8)) < 1.2e14  # whatever arrives


@pytest.mark.parametrize("compress", ["choco:bits=8", "power:1,bits=8"])
def test_codes_with_a_scale_that_no_honest_agent_has_are_refused(compress: str) -> None:
    network = Network(problem(compress=compress, topology="ring"), Faults(), seed=0)
    while not (network.members.get(1) and network.members[1].position[0] == 3):
        network.step()
    member = network.members[1]
    while member.exchanges.current.phase != Phase.CONSENSUS or 0 not in member.waiting_for:
        network.step()
    exchange = member.exchanges.current
    (shape,) = [shape for link, shape in exchange.expected.items() if link.sender == 0]
    lie = torch.full(shape, 255, dtype=torch.uint8)
    frame = Frame(0, member.epoch, member.position, "train", "consensus", exchange.index, lie)
    member.receive(0, encode(frame, RUN), network.now)
    network.run()
    check(network)
    assert network.last[1].refused["too large"] == 1


def test_one_huge_number_changes_nothing_and_its_sender_is_known() -> None:
    """In a consensus, as in a forward pass: the right message is asked for again."""
    for phase in ("forward", "consensus"):
        network = Network(problem(), Faults(), seed=0)
        refused: list[tuple[int, str]] = []
        while not (network.members.get(1) and network.members[1].position[0] == 2):
            network.step()
        member = network.members[1]

        def note(sender: int, error: RefusedError, found: list[tuple[int, str]] = refused) -> None:
            found.append((sender, str(error)))

        member.on_refused = note
        while str(member.exchanges.current.phase) != phase or 0 not in member.waiting_for:
            network.step()
        exchange = member.exchanges.current
        (shape,) = [shape for link, shape in exchange.expected.items() if link.sender == 0]
        expected = member._expectations(member.position)
        assert expected is not None
        plan = expected.plan
        frame = Frame(0, member.epoch, member.position, plan, phase, exchange.index, torch.full(shape, 1e30).double())
        member.receive(0, encode(frame, RUN), network.now)
        network.run()
        check(network)
        assert (0, f"too large: 1.0e+30 in a {phase} message") in refused


def test_a_neighbour_that_sends_only_what_is_impossible_is_named() -> None:
    network = Network(problem(), Faults(), seed=0)
    liar = ByzantineAgent(network, 2, network.random, ())
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    liar.replaces = True
    with pytest.raises(GossamerError, match=r"agent 2 has sent agent . what no honest agent sends \(too large"):
        network.run()


def poisoned(network: Network) -> GossamerError:
    """Bring weights into a consensus that no honest agent has, but within the bounds; the run diverges from them."""
    while not (network.members.get(1) and network.members[1].position[0] == 3):
        network.step()
    while network.members[1].exchanges.current.phase != Phase.CONSENSUS:
        network.step()
    member = network.members[1]
    for arrived in member.exchanges.inbox.setdefault(member.position, {}).values():
        arrived[0].mul_(1e8)
    (shape,) = {shape for link, shape in member.exchanges.current.expected.items() if link.sender == 0}
    lie = torch.full(shape, 9e8, dtype=torch.float64)
    member.exchanges.inbox[member.position][0] = (lie, 9e8)
    with pytest.raises(GossamerError, match="has diverged") as ended:
        network.run()
    return ended.value


def test_a_run_that_was_poisoned_starts_again_from_before() -> None:
    """It ends when it diverges, names where the numbers came from, and goes on from before without the liar."""
    network = Network(problem(update="gd", step_size=1.0, checkpoint_every=1, steps=12, dropout=0.0), Faults(), seed=0)
    error = poisoned(network)
    assert "features and targets; the largest number that it was sent, " in str(error)
    assert all(part.abs().max() <= MAGNITUDE_LIMIT for disk in network.disks.values()
               for params, _ in disk.checkpoints.values() for part in params.values())  # fmt: skip
    for _ in range(20):  # every time that it diverges again, it goes back further
        for k in range(M):
            network.kill(k)
        try:
            network.run()
            break
        except GossamerError as again:
            assert "has diverged" in str(again)  # noqa: PT017
    check(network)


def test_what_has_diverged_is_not_kept(tmp_path: Path) -> None:
    check_checkpoint([torch.full((2,), MAGNITUDE_LIMIT)], [torch.full((2,), 1e30)])  # adam squares gradients
    for weights, state in ((1.1 * MAGNITUDE_LIMIT, 0.0), (float("nan"), 0.0), (1.0, float("inf"))):
        with pytest.raises(DivergedError):
            check_checkpoint([torch.tensor([1.0, weights])], [torch.tensor([state])])
    host, settings = problem().hosts[0], problem().settings
    far = FakeDisk(3, ({name: 1e13 * part for name, part in host.params.items()}, host.state), lambda where: None)
    with pytest.raises(DivergedError, match=r"weights beyond 1e\+12"):
        next(train_from(host, settings, far, 2, lambda found: None, problem().evaluations[0]))
    assert not far.checkpoints
    disk = CheckpointStore(tmp_path, 3, {"w": torch.zeros(2)}, {})
    for step in (0, 5, 10):
        disk.save(step, {"w": torch.full((2,), float(step))}, {})
    disk.discard(12, start=0)
    assert disk.steps() == [0, 5]
    assert torch.equal(disk.load(0)[0]["w"], torch.zeros(2))


def test_a_run_that_diverges_again_goes_further_back_each_time(tmp_path: Path) -> None:
    """Deterministic training writes the checkpoint that was given up again, and comes no further."""
    disk = CheckpointStore(tmp_path, 4, {"w": torch.zeros(2)}, {})
    begun, starts = 0, []
    for _ in range(5):
        for step in range(begun, 35, 10):
            disk.save(step, {"w": torch.full((2,), float(step))}, {})
        disk.discard(35, begun)
        begun = disk.steps()[-1]
        starts.append(begun)
    assert starts == [20, 10, 0, 0, 0]
    for step in range(0, 65, 10):
        disk.save(step, {"w": torch.zeros(2)}, {})
    disk.discard(65, start=0)  # it has come further: only the latest is suspect
    assert disk.steps()[-1] == 50


def test_a_crash_between_writing_and_removing_leaves_an_agent_that_others_believe(tmp_path: Path) -> None:
    disk = CheckpointStore(tmp_path, 3, {"w": torch.zeros(2)}, {})
    for step in (10, 20, 30):
        disk.save(step, {"w": torch.zeros(2)}, {})
    oldest = (tmp_path / "checkpoint-10.safetensors").read_bytes()
    disk.save(40, {"w": torch.zeros(2)}, {})
    (tmp_path / "checkpoint-10.safetensors").write_bytes(oldest)  # as if it had not been removed
    again = CheckpointStore(tmp_path, 3, {"w": torch.zeros(2)}, {})
    assert again.steps() == [0, 20, 30, 40]
    again.save(50, {"w": torch.zeros(2)}, {})
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [
        f"checkpoint-{step}.safetensors" for step in (30, 40, 50)
    ]


def test_a_checkpoint_that_has_vanished_is_not_the_beginning(tmp_path: Path) -> None:
    disk = CheckpointStore(tmp_path, 3, {"w": torch.zeros(2)}, {})
    with pytest.raises(GossamerError, match=r"checkpoint-20\.safetensors"):
        disk.load(20)


def test_a_step_size_that_is_too_large_is_told_as_before() -> None:
    made = problem(update="gd")
    hosts = {k: replace(h, training=replace(h.training, step_size=1e40)) for k, h in made.hosts.items()}
    with pytest.raises(GossamerError, match=r"has diverged; cut the shards again with a smaller --step-size"):
        Network(replace(made, hosts=hosts), Faults(), seed=0).run()
