"""Over a network that delays, loses, reorders, parts and kills, agents end with the bits of an undisturbed run."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from peers.byzantine import ByzantineAgent, Lie
from peers.disks import Kill, Killed
from peers.frames import is_frame
from peers.network import Faults, Network, keyring
from peers.problems import M, problem
from peers.schedules import check, quiet, run_schedule

from gossamer.agents import Link, Phase
from gossamer.errors import GossamerError
from gossamer.peers.protocol.member import ISOLATION_TIMEOUT
from gossamer.peers.protocol.statements import Statement, sign_done, sign_restorable
from gossamer.peers.protocol.wire import Frame, Status, encode

COMPRESSED = {"topology": "ring", "compress": "power:1,bits=8", "track": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"consensus_every": 1}, {"consensus_every": 3}, {"consensus_every": 0},
        COMPRESSED, {"compress": "power:9"}, {"compress": "choco:topk=0.3", "consensus_every": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_quiet_network_gives_the_bits_of_the_simulation(changes: dict[str, Any]) -> None:
    network = Network(problem(**changes), Faults(), seed=0)
    network.run()
    check(network)
    assert all(set(records) == {0, 3, 6, 7} for records in network.records.values())
    assert not any(member.refused["unplanned"] for member in network.last.values())


@pytest.mark.parametrize("where", Kill)
def test_an_agent_killed_anywhere_comes_back(where: Kill) -> None:
    """At the first occasion, in the middle and at the last."""
    made, occasions, _ = quiet(0)
    for occasion in {1, (1 + occasions[where]) // 2, occasions[where]}:
        drop = 0.2 if where == Kill.SENDING_AGAIN else 0.0
        network = Network(made, Faults(drop=drop, kills=((where, max(occasion, 1)),)), seed=0)
        network.run()
        check(network)
        assert network.killed[where] == 1


@pytest.mark.parametrize("where", [Kill.CONSENSUS_UNSENT, Kill.CONSENSUS_SENT])
def test_an_agent_killed_within_a_compressed_consensus_comes_back(where: Kill) -> None:
    """With what it and its neighbours have told each other, as it was at the checkpoint."""
    for occasion in (3, 40, 80):
        network = Network(problem(**COMPRESSED), Faults(kills=((where, occasion),)), seed=0)
        network.run()
        check(network)
        assert network.killed[where] == 1


def test_numbers_of_another_type_than_planned_are_refused() -> None:
    network = Network(problem(compress="choco:bits=8"), Faults(), seed=0)
    while not (network.members.get(1) and network.members[1].position[0] == 2):
        network.step()
    member = network.members[1]
    while member.exchanges.current.phase != Phase.CONSENSUS or not member.waiting_for:
        network.step()
    liar, exchange = member.waiting_for[0], member.exchanges.current
    rows = torch.zeros(exchange.expected[Link(liar, 1)], dtype=torch.float64)
    frame = Frame(liar, member.epoch, member.position, "train", "consensus", exchange.index, rows)
    member.receive(liar, encode(frame, "run"), network.now)
    assert exchange.dtype == torch.uint8
    assert member.refused["unplanned"] == 1
    assert liar in member.waiting_for
    network.run()
    check(network)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_faults_cost_time_and_not_results(first: int) -> None:
    """A sample; `python tests/peers/schedules.py` runs thousands."""
    for seed in range(first, first + 10):
        run_schedule(seed)


def test_damaged_checkpoints_cost_time_and_not_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits flipped in and pieces cut off the files of agents that were killed."""
    monkeypatch.setattr("os.fsync", lambda file: None)
    damaged = 0
    for seed in range(6):
        kills = tuple((Kill.CHECKPOINT_WRITTEN, seed + occasion) for occasion in (5, 9, 13))
        network = Network(problem(), Faults(kills=kills, power_cut=0.3, damage=0.9), seed)
        network.run()
        check(network)
        damaged += network.happened["checkpoint damaged"]
    assert damaged > 12


def test_a_schedule_that_is_run_again_is_the_same() -> None:
    one, other = run_schedule(7), run_schedule(7)
    assert (one.count, one.now, one.killed) == (other.count, other.now, other.killed)
    assert one.count > 500


def test_everyone_stopped_and_started_again_goes_on() -> None:
    """A power cut: all agents lose what they had in memory, at the same moment."""
    network = Network(problem(), Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    for k in list(network.members):
        network.kill(k)
    network.run()
    check(network)
    assert all(disk.number > 1 for disk in network.disks.values())


def test_a_replayed_message_of_an_earlier_epoch_is_refused() -> None:
    network = Network(problem(), Faults(), seed=0)
    overheard: list[Any] = []
    network.overhear = lambda sender, receiver, message: overheard.append((sender, receiver, message))
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    network.kill(0)
    network.overhear = None
    while network.members.get(1) is None or network.members[1].epoch < 2:
        network.step()
    for message in overheard:
        network.deliver(*message)
    network.run()
    check(network)
    assert sum(member.refused["old"] for member in network.last.values()) > 0


def test_an_agent_cut_off_while_the_others_finish_still_ends() -> None:
    for seconds in (2.0, 8.0, 20.0):
        network = Network(problem(), Faults(), seed=0)
        while not any(member.finished for member in network.members.values()):
            network.step()
        network.isolate(3, network.now + seconds)
        network.run()
        check(network)


@pytest.mark.parametrize("agent", range(M))
def test_an_agent_that_dies_after_it_finished_strands_nobody(agent: int) -> None:
    network = Network(problem(), Faults(), seed=1)
    while not network.disks[agent].done:
        network.step()
    network.kill(agent)
    network.run()
    check(network)


def test_an_agent_alone_after_the_others_left_leaves_too() -> None:
    network = Network(problem(), Faults(), seed=1)
    network.run()
    network.kill(2)  # it starts again, and nobody is there
    network.run()
    assert network.gone == set(range(M))


def test_a_disk_that_forgot_its_epoch_speaks_anew() -> None:
    network = Network(problem(), Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    network.disks[3].number = 0
    network.disks[3].checkpoints.clear()
    network.kill(3)
    network.run()
    check(network)


def test_a_slow_link_is_not_flooded() -> None:
    """Half a second each way and no loss: the pace adapts, and little is sent twice."""
    made = problem(steps=30, checkpoint_every=30, evaluate_every=30)
    network = Network(made, Faults(delay=0.5, steady=True), seed=0)
    sent: list[Any] = []
    network.overhear = lambda *message: sent.append(message) if is_frame(message[2]) else None
    network.run()
    assert len(sent) < 1.5 * len(set(sent))


EPOCH = 1  # of a quiet network


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (lambda liar: sign_restorable("run", keyring(liar), liar, EPOCH, 7, ()), "malformed"),
        (lambda liar: sign_restorable("run", keyring(liar), liar, EPOCH, 7, (2,)), "malformed"),
        (lambda liar: sign_restorable("run", keyring(liar), liar, EPOCH, 7, (0, 4, 2)), "malformed"),
        (lambda liar: sign_restorable("run", keyring(liar), liar, EPOCH, 7, (0, 99)), "malformed"),
        (lambda liar: sign_restorable("run", keyring(liar), liar, EPOCH, 7, range(7)), "malformed"),
        (lambda liar: sign_restorable("run", keyring(liar), 9, EPOCH, 7, (0,)), "malformed"),
        (lambda liar: sign_restorable("run", keyring(liar), liar, 2**62, 7, (0,)), "malformed"),
        (lambda liar: sign_done("run", keyring(liar), 9), "malformed"),
        (lambda liar: sign_done("run", keyring(liar), 3), "signature"),
        (lambda liar: sign_done("another", keyring(3), 3), "signature"),
        (lambda liar: sign_restorable("run", keyring(liar), 3, EPOCH, 7, (0,)), "signature"),
        (lambda liar: sign_restorable("run", keyring(3), 3, EPOCH - 1, 7, (0,)), "signature"),
        (lambda liar: sign_done("run", keyring(liar), liar), "signature"),  # nothing that it states of itself
    ],
)
def test_a_status_that_nobody_would_send_changes_nothing(fact: Callable[[int], Statement], reason: str) -> None:
    network = Network(problem(), Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    before = network.disks[0].number
    liar = network.neighbours[0][0]
    said, known = fact(liar), network.members[0].statements.restorable[liar]
    facts = [said.content] if said.agent == liar else [known.content, said.content]
    assert network.members[0].epoch == known.epoch == EPOCH
    message = encode(Status(liar, max(EPOCH, said.epoch or 0), tuple(facts)), "run")
    refused = Counter(network.members[0].refused)
    network.members[0].receive(liar, message, network.now)
    assert network.members[0].refused - refused == {reason: 1}
    assert network.disks[0].number == before
    network.run()
    check(network)


def test_a_run_that_diverges_says_so() -> None:
    made = problem(update="gd")
    hosts = {k: replace(h, training=replace(h.training, step_size=1e308)) for k, h in made.hosts.items()}
    with pytest.raises(GossamerError, match="has diverged"):
        Network(replace(made, hosts=hosts), Faults(), seed=0).run()


def test_an_agent_far_ahead_waits_for_the_others() -> None:
    """Without consensus an agent without vertices has nothing to wait for; its neighbours take minutes."""
    network = Network(problem(consensus_every=0), Faults(delay=10.0, steady=True), seed=0)
    while 3 not in network.gone:
        network.step()
    assert network.now > 200
    assert all(disk.done for disk in network.disks.values())


def test_agents_that_come_back_after_the_others_left_leave_too() -> None:
    """Two of them hear each other, and nobody else."""
    network = Network(problem(), Faults(), seed=0)
    network.run()
    network.kill(2)
    network.kill(3)
    network.run()
    assert network.gone == set(range(M))


def test_agents_that_wait_for_a_last_one_do_not_flood_each_other() -> None:
    network = Network(problem(topology="complete"), Faults(), seed=0)
    while not network.disks[0].done:
        network.step()
    network.isolate(1, network.now + 100)  # agent 0 is the root of sums: whoever it has told the last one is done, too
    sent: list[Any] = []
    network.overhear = lambda sender, receiver, message: sent.append((sender, receiver))
    network.run()
    check(network)
    assert len(sent) < 250


@pytest.mark.parametrize(("kind", "first"), [("lies", 0), ("lies", 8), ("floods", 0)])
def test_lies_change_nothing_or_the_liar_is_named(kind: str, first: int) -> None:
    """A sample; `python tests/peers/schedules.py 2000 0 lies` runs thousands."""
    for seed in range(first, first + (8 if kind == "lies" else 4)):
        run_schedule(seed, kind)


@pytest.mark.parametrize("lie", Lie)
def test_every_lie_beside_an_honest_agent_ends_as_it_must(lie: Lie) -> None:
    network = Network(problem(), Faults(), seed=0)
    liar = ByzantineAgent(network, 1, network.random, ())
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    for _ in range(3):
        liar._send_lie(lie)
    try:
        network.run()
    except GossamerError as error:
        assert lie in (Lie.IN_PLACE, Lie.OWN_DONE, Lie.TWO_STEPS)
        assert "agent 1 has " in str(error)  # noqa: PT017
    else:
        assert lie not in (Lie.IN_PLACE, Lie.OWN_DONE, Lie.TWO_STEPS)
        check(network)
    assert liar.count[lie] > 0


def test_a_false_done_reaches_nobody() -> None:
    """Agent 0 says that agent 2, which is not its neighbour, is done: agent 1 neither believes it nor passes it on."""
    network = Network(problem(), Faults(), seed=0)
    while len(network.disks[0].checkpoints) < 2:
        network.step()
    liar, victim = network.members[0], network.members[1]
    assert network.neighbours[0] == (1,)
    facts = (*victim.statements.contents, sign_done("run", keyring(0), 2).content)
    victim.receive(0, encode(Status(0, liar.epoch, facts), "run"), network.now)
    assert victim.refused["signature"] == 1
    assert not victim.statements.done
    network.run()
    check(network)


def test_the_hub_of_a_star_that_dies_before_it_is_done_ends_with_the_others() -> None:
    """It comes back after the leaves have left, early; started again, they bring it to its end."""
    network = Network(problem(topology="star"), Faults(), seed=0)
    hub = max(network.neighbours, key=lambda k: len(network.neighbours[k]))
    died: list[float] = []

    def dies(where: Kill) -> None:
        if where == Kill.DONE_UNWRITTEN and not died:
            died.append(network.now)
            raise Killed(where)

    def kill(agent: int) -> None:
        wait = ISOLATION_TIMEOUT + 15 if agent == hub and died == [network.now] else 0.0
        network.members.pop(agent, None)
        network.later(network.now + wait, lambda: start_again(agent))

    start_again, network.kill, network.disks[hub].dies = network.kill, kill, dies  # type: ignore[method-assign]
    network.run()
    check(network)
    assert died
    assert network.happened["left before all had finished"] == len(network.neighbours[hub])
    assert all(member.all_done for member in network.last.values())
