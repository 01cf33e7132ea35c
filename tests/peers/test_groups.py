"""Memberships that follow each other: schedules of a pretended network, and mutations that they catch."""

import math
import operator
from dataclasses import replace
from itertools import combinations

import pytest
from peers import groups
from peers.groups import STEPS, Disk, GroupNetwork, Point, Scenario
from peers.membership_schedules import run_schedule

from gossamer.errors import GossamerError
from gossamer.peers.protocol import notices
from gossamer.peers.protocol.change_messages import Ballots, Decision, encode_change
from gossamer.peers.protocol.changes import TAKEOVER_SILENCE
from gossamer.peers.protocol.group import Group
from gossamer.peers.protocol.member import DEPARTURE_TIMEOUT
from gossamer.peers.protocol.paxos import Decree, VoteKind
from gossamer.peers.protocol.signatures import derive_verify_key
from gossamer.peers.protocol.terms import Entry, Profile, make_entries, name_term, pack_members

RING = ((0, 1), (1, 2), (2, 3), (0, 3), (0, 2))
WHOLE = tuple(combinations(range(5), 2))
CUT = ((frozenset({0, 1}), 0.2, 60.0),)  # two of four, each part without a majority


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 120, 10))
def test_schedules_end_with_the_weights_of_their_replay(first: int) -> None:
    for seed in range(first, first + 10):
        run_schedule(seed)


def run(scenario: Scenario, seed: int = 0) -> GroupNetwork:
    network = GroupNetwork(scenario, seed)
    network.run()
    network.check()
    return network


def make_profile(*links: int, nonce: int = 1) -> bytes:
    key = 2 * derive_verify_key(groups.secret(0))
    return Profile("host:1", key, dict.fromkeys(links, 1), nonce).pack()


def decide(number: int, following: tuple[Entry, ...], founders: int = 2) -> tuple[bytes, ...]:
    """The certificate of what followed membership 0."""
    term = name_term("run", number, make_entries(range(founders)))
    voters = [
        Decree(term.name, k, founders, groups.sign(k, term.ids), Disk(lambda point: None).votes(0), lambda *what: None)
        for k in term.ids
    ]
    voters[0].propose(pack_members(following))
    while voters[0].decided is None:
        for one in voters:
            for other in voters:
                one.receive(other.contents)
    return voters[0].certificate


def start(network: GroupNetwork, k: int, disk: Disk) -> Group:
    network.disks[k] = disk
    network.start(k)
    return network.groups[k]


def test_a_lost_agent_is_removed_and_the_others_end() -> None:
    network = run(Scenario(4, RING, lost=((3, 0.3),)))
    assert sorted(network.finished) == [0, 1, 2]
    assert [term.ids for term in network.terms] == [(0, 1, 2, 3), (0, 1, 2)]


def test_nobody_leaves_and_nothing_is_decided_but_the_end() -> None:
    network = run(Scenario(4, RING, drop=0.1))
    assert sorted(network.finished) == [0, 1, 2, 3]
    assert [disk.members for disk in network.disks.values()] == [[None]] * 4


def test_an_agent_leaves_on_purpose() -> None:
    network = run(Scenario(4, RING, delay=0.1, leaving=((1, 0.3),)))
    assert sorted(network.finished) == [0, 2, 3]
    assert network.happened["left"] == 1


@pytest.mark.parametrize("seed", range(10))
def test_nobody_waits_for_an_agent_that_has_ended(seed: int) -> None:
    """Who ends has told all its neighbours that it knows the decision, whoever it learnt of it from."""
    lost, leaving = (
        Scenario(5, WHOLE, delay=0.02, lost=((4, 0.5),)),
        Scenario(5, WHOLE, delay=0.02, leaving=((4, 0.2),)),
    )
    for scenario in (lost, leaving):
        network = run(scenario, seed)
        assert {0, 1, 2, 3} <= set(network.finished)
        assert network.now < DEPARTURE_TIMEOUT


def test_an_agent_that_holds_the_others_together_stays() -> None:
    network = run(Scenario(3, ((0, 1), (1, 2)), delay=0.1, leaving=((1, 0.3),)))
    assert sorted(network.finished) == [0, 1, 2]


def test_a_stranger_joins_and_takes_part_to_the_end() -> None:
    network = run(Scenario(4, (*RING, (1, 4)), delay=0.1, joining=((4, 0.2),)))
    assert sorted(network.finished) == [0, 1, 2, 3, 4]
    assert network.terms[-1].ids == (0, 1, 2, 3, 4)


def test_an_agent_that_is_alone_reads_messages_between_two_steps() -> None:
    """Others may ask it to join, and who has left waits for its word."""
    network = GroupNetwork(Scenario(1, ()), 0)
    network.start(0)
    group, steps = network.groups[0], list[int]()
    assert group.member is not None
    while not group.member.finished:
        assert group.wake_at <= network.now
        steps.append(group.member.position[0])
        group.tick(network.now)
    assert steps == list(range(1, STEPS + 1))
    network.run()
    network.check()


def test_of_two_agents_none_can_be_removed() -> None:
    network = GroupNetwork(Scenario(2, ((0, 1),), lost=((1, 0.3),)), 0)
    with pytest.raises(AssertionError, match="no end"):
        network.run(deadline=50.0)
    assert network.disks[0].members == []


def test_parts_without_a_majority_wait_and_go_on_when_the_network_heals() -> None:
    network = GroupNetwork(Scenario(4, RING, delay=0.05, splits=CUT), 0)
    with pytest.raises(AssertionError, match="no end"):
        network.run(deadline=50.0)
    assert all(group.change and group.change.split for group in network.groups.values())
    network.run()
    network.check()
    assert len(network.terms) == 1


def test_the_smaller_part_of_a_split_comes_back() -> None:
    anew = 0
    for seed in range(5):
        network = run(Scenario(4, RING, delay=0.3, splits=((frozenset({3}), 1.0, 9.0),)), seed)
        assert any(term.ids == (0, 1, 2) for term in network.terms)
        anew += network.happened["joined anew"]
    assert anew >= 3  # or the others had finished by then


def test_a_moved_agent_is_replaced_by_itself() -> None:
    network = run(Scenario(4, RING, delay=0.1, moving=((2, 0.3),)))
    assert sorted(network.finished) == [0, 1, 2, 3]
    assert network.terms[-1].entries[2].packed


@pytest.mark.parametrize("seed", range(3))
def test_an_agent_that_joined_and_lost_its_checkpoints_sends_nobody_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "STEPS", 60)
    monkeypatch.setattr(groups, "KEEP", 5)  # so that the others soon have none from before it joined
    network = run(Scenario(4, (*RING, (1, 4)), delay=0.1, joining=((4, 0.0),), wiped=((4, 12.0),)), seed)
    assert sorted(network.finished) == [0, 1, 2, 3, 4]
    base, adopters = network.disks[0].bases[2]  # it has joined anew, and takes over weights again
    assert adopters == (4,)
    assert base is not None
    assert base[0] == 1
    assert base[1] > 20


def test_an_agent_that_joined_and_lost_its_disk_sends_nobody_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "STEPS", 60)
    network = run(Scenario(4, (*RING, (1, 4)), delay=0.1, joining=((4, 0.0),), erased=((4, 12.0),)))
    assert sorted(network.finished) == [0, 1, 2, 3, 4]
    assert len(network.terms) == 3
    base, adopters = network.disks[0].bases[2]
    assert adopters == (4,)
    assert base is not None
    assert base[0] == 1
    assert base[1] > 20


def test_an_agent_that_joined_finished_and_lost_its_disk_does_not_stop_the_last_decision() -> None:
    """Of two members both are needed to decide the end; it is outside then, as its result is gone."""
    network = run_schedule(52084)
    assert network.happened["lost its disk"] == 1
    assert network.happened["outside at the end"] == 1
    assert sorted(network.finished) == [1]  # agent 0 was cut off and comes back when all have gone


def test_an_agent_whose_only_neighbour_lost_its_disk_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "STEPS", 100)
    links = (*RING, (1, 4), (4, 5))
    network = run(Scenario(4, links, delay=0.1, joining=((4, 0.0), (5, 3.0)), erased=((4, 12.0),)))
    assert sorted(network.finished) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("members", [2, 3])
def test_an_agent_without_its_votes_takes_no_part_where_others_may_have_counted_them(members: int) -> None:
    network = GroupNetwork(Scenario(2, ((0, 1), (0, 2), (1, 2))), 0)
    joined = Entry(2, make_profile(0, 1))
    disk = Disk(lambda point: None, packed=joined.packed)
    disk.decided = [decide(0, (Entry(0), *([Entry(1)] if members == 3 else []), joined))]
    assert start(network, 2, disk).member is not None  # it has been decided just now
    assert disk.has_entered(1)
    disk.packed = make_profile(0, 1, nonce=2)
    assert start(network, 2, disk).member is not None  # it has moved, and asks to be replaced
    disk.numbers.clear()
    assert (start(network, 2, disk).member is not None) == (members == 2)


@pytest.mark.parametrize("moved", [{1}, {0, 2}, {1, 2, 3}])
def test_first_members_that_start_elsewhere_than_their_shards_say_begin_the_run(moved: set[int]) -> None:
    network = GroupNetwork(Scenario(4, RING, delay=0.05), 0)
    network.moved |= moved
    network.run(deadline=120.0)
    network.check()
    assert sorted(network.finished) == [0, 1, 2, 3]


def test_a_number_is_not_taken_from_a_member_that_is_there() -> None:
    network = GroupNetwork(Scenario(4, ((0, 1), (1, 2), (2, 3))), 0)
    network.is_same = operator.eq
    for k in network.ids:
        network.start(k)
    for asked, later, taken in ((3, 100.0, False), (1, 5.0, False), (1, TAKEOVER_SILENCE + 1, True)):
        group = network.groups[asked]
        request = network.groups[0].config.ask(asked, Entry(0, make_profile(asked)), 0)
        group.receive("another key", request, later)
        assert group.change is not None
        assert ((VoteKind.SPONSORED, asked) in group.change.decree.votes) == taken
        assert group.refused["sender"] == (not taken)
        group.refused.clear()
    reasons = list[str]()
    group = network.groups[1]
    group._on_refused = lambda sender, refused: reasons.append(refused.detail)
    for claimed in (0, 9):  # a site with the number of a first member takes itself for that
        group.receive("another key", encode_change(Ballots(claimed, ()), group.term.name), 0.0)
    assert reasons == [
        "agent 0 is a member, with another key; take another number",
        "no member, and no request to join",
    ]


def test_an_agent_whose_number_is_taken_ends() -> None:
    network = GroupNetwork(Scenario(3, ((0, 1), (0, 2), (1, 2))), 0)
    disk = Disk(lambda point: None)
    disk.decided = [decide(0, (Entry(0), Entry(1), Entry(2, make_profile(0, 1))), 3)]
    start(network, 2, disk)
    network.is_same = operator.eq
    disk.packed = b""
    with pytest.raises(GossamerError, match="the number 2 now belongs to an agent with another key"):
        start(network, 2, disk)
    network.is_same = lambda entry, other: True
    assert start(network, 2, disk).member is None  # with the newer key it asks to be replaced


def test_only_keys_that_came_with_a_decision_are_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt = list[tuple[bytes, ...]]()
    network = GroupNetwork(Scenario(3, ((0, 1), (0, 2), (1, 2), (0, 3)), joining=((3, 0.0),)), 0)
    group = start(network, 3, network.disks[3])

    def learn(keys: tuple[bytes, ...]) -> bool:
        learnt.append(keys)
        return bool(keys)

    group.config = replace(group.config, learn_founders=learn)
    for sender in (0, "a key that is admitted"):
        group.receive(sender, encode_change(Decision(0, ()), group.term.name), 0.0)
    assert learnt == []
    group.receive(0, encode_change(Decision(0, (), (b"key",)), group.term.name), 0.0)
    assert learnt == [(b"key",), ()]
    assert group.refused == {"malformed": 3}


@pytest.mark.parametrize("reminds", [True, False])
def test_an_agent_that_was_away_learns_of_a_membership_from_one_that_joined(
    monkeypatch: pytest.MonkeyPatch, reminds: bool
) -> None:
    """Agent 3's links to members of its own membership are lost with them: 5, which has joined, alone can tell it."""
    if not reminds:
        monkeypatch.setattr(notices, "REMINDER_INTERVAL", math.inf)
    scenario = Scenario(
        5,
        ((0, 1), (1, 2), (1, 4), (1, 5), (1, 6), (2, 3), (2, 4), (3, 4), (3, 5), (4, 0)),
        double=0.1,
        delay=0.001,
        kills=((Point.DONE, 22), (Point.RECEIVING, 26), (Point.PROMISE, 10)),
        lost=((2, 1.1428607245423699), (4, 0.44233415263873466)),
        joining=((5, 0.5625205078737056), (6, 1.0620263126103504)),
        wiped=((5, 2.0509953004921213), (6, 7.356972132328247)),
        splits=((frozenset({0, 1, 3, 4}), 4.30298488569724, 21.713516407349957),),
    )
    network = GroupNetwork(scenario, 103573)
    if not reminds:
        with pytest.raises(AssertionError, match="no end"):
            network.run(deadline=200.0)
        return
    network.run()
    network.check()
    assert sorted(network.finished) == [0, 1, 3, 5, 6]


def test_a_majority_of_fewer_makes_two_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decree, "majority", property(lambda decree: decree._num_agents // 2))
    with pytest.raises(AssertionError, match="two histories"):
        run(Scenario(4, RING, delay=0.05, splits=CUT))
