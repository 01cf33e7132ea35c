"""Messages around links that are down: calls, echoes and detours, and what others can do to them."""

from collections import deque
from typing import Any

import msgpack
import pytest
from peers.network import RUN, Faults, Network, keyring
from peers.problems import M, problem
from peers.schedules import check

from gossamer.peers.protocol import detours
from gossamer.peers.protocol.boxes import make_seals
from gossamer.peers.protocol.detours import (
    CALL_BURST,
    CALL_INTERVAL,
    DETOUR_LASTS,
    LINK_SILENCE,
    MAX_PARTS,
    PART_BYTES,
    Detours,
    max_detour_bytes,
)
from gossamer.peers.protocol.signatures import UNSIGNED
from gossamer.peers.protocol.wire import CALL, DETOUR, HEADER, RefusedError, find_kind

BOTH = ((1, 2), (2, 1))
Links = dict[int, tuple[int, ...]]
RING: Links = {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}


class World:
    """Agents with nothing but their detours, on one clock; messages arrive at once, except over links that are down."""

    def __init__(
        self, links: Links = RING, down: tuple[tuple[int, int], ...] = (), signed: bool = True, largest: int = 1 << 20
    ) -> None:
        self.largest = largest
        self.down, self.now = set(down), 0.0
        self.waiting: deque[tuple[int, int, bytes]] = deque()
        self.busy: set[int] = set()  # agents that read nothing
        self.arrived: dict[int, list[tuple[int, bytes]]] = {k: [] for k in links}
        self.passed: list[tuple[int, int, bytes]] = []
        self.agents = {k: self._make(k, near, signed) for k, near in links.items()}

    def _make(self, k: int, near: tuple[int, ...], signed: bool) -> Detours:
        def send(z: int, message: bytes) -> None:
            assert z in near
            self.passed.append((k, z, message))
            if (k, z) not in self.down:
                self.waiting.append((k, z, message))

        return Detours(k, M, near, RUN, make_seals(keyring(k) if signed else UNSIGNED, k, RUN), send, 0.0, self.largest)

    def deliver(self) -> None:
        kept = deque[tuple[int, int, bytes]]()
        while self.waiting:
            k, z, message = self.waiting.popleft()
            if z in self.busy:
                kept.append((k, z, message))
                continue
            taken = self.agents[z].receive(k, memoryview(bytearray(message)), self.now)
            if taken is not None:
                self.arrived[z].append((taken[0], bytes(taken[1])))
        self.waiting = kept

    def run(self, seconds: float, talks: bool = True) -> None:
        """Every agent sends each neighbour something twice a second, unless it is busy."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for k, agent in self.agents.items():
                if k not in self.busy:
                    agent.tick(self.now)
                    for z in agent._neighbours if talks else ():
                        agent.send(z, b"x" * 40)
            self.deliver()

    def paths(self) -> dict[int, dict[int, tuple[int, ...]]]:
        return {k: {z: one.path for z, one in agent.detours.items()} for k, agent in self.agents.items()}


@pytest.mark.parametrize("signed", [True, False])
def test_a_link_that_is_down_is_passed_by_and_taken_up_again(signed: bool) -> None:
    world = World(down=BOTH, signed=signed)
    world.run(LINK_SILENCE + CALL_INTERVAL + 1)
    assert world.paths() == {0: {}, 1: {2: (1, 0, 3, 2)}, 2: {1: (2, 3, 0, 1)}, 3: {}}
    for agent in (1, 2):
        world.arrived[agent].clear()
        world.agents[3 - agent].send(agent, b"numbers")
    world.deliver()
    assert world.arrived[1] == [(2, b"numbers")]
    assert world.arrived[2] == [(1, b"numbers")]
    world.run(60)
    assert world.paths()[1]  # called for again and again
    world.down.clear()
    world.run(DETOUR_LASTS + 1)
    assert not any(world.paths().values())


def test_a_link_that_is_down_one_way_has_a_detour_that_way() -> None:
    world = World(down=((1, 2),))
    world.run(LINK_SILENCE + CALL_INTERVAL + 8)
    assert world.paths() == {0: {}, 1: {2: (1, 0, 3, 2)}, 2: {}, 3: {}}


def test_a_detour_ends_that_breaks_and_another_is_found() -> None:
    complete = {k: tuple(z for z in range(M) if z != k) for k in range(M)}
    world = World(complete, down=BOTH)
    world.run(LINK_SILENCE + CALL_INTERVAL + 8)
    assert world.paths()[1][2] in {(1, 0, 2), (1, 3, 2)}
    relay = world.paths()[1][2][1]
    world.busy = {relay}  # dies
    world.waiting.clear()
    world.run(LINK_SILENCE + CALL_INTERVAL + 8)
    assert world.paths()[1][2] == (1, 3 - relay, 2)


def test_a_bridge_has_no_detour() -> None:
    world = World({0: (1,), 1: (0, 2), 2: (1, 3), 3: (2,)}, down=BOTH)
    world.run(60)
    assert not any(world.paths().values())


def test_an_agent_in_long_arithmetic_is_waited_for() -> None:
    """It reads calls over others when it is back, and its echo tells that the link is not down."""
    world = World()
    world.run(3)
    for _ in range(4):
        world.busy = {2}
        world.run(2 * LINK_SILENCE)
        world.busy = set()
        world.run(1)
        assert not any(world.paths().values())
    assert any(find_kind(message) == CALL for _, _, message in world.passed)


def test_neighbours_without_messages_call_and_take_no_detour() -> None:
    world = World()
    world.run(60, talks=False)
    assert not any(world.paths().values())
    calls = sum(find_kind(message) == CALL for _, _, message in world.passed)
    assert calls <= 60 / CALL_INTERVAL * 8 * 8  # each of 8 neighbours, over each link at most


def test_relays_learn_no_content_and_change_none() -> None:
    world = World(down=BOTH)
    world.run(LINK_SILENCE + CALL_INTERVAL + 3)
    world.passed.clear()
    world.agents[1].send(2, bytes(range(64)))
    (message,) = [message for k, z, message in world.passed if (k, z) == (1, 0)]
    assert find_kind(message) == DETOUR
    assert bytes(range(8)) not in message
    assert len(message) <= 64 - PART_BYTES + max_detour_bytes(M)
    world.deliver()
    (last,) = [message for k, z, message in world.passed if (k, z) == (3, 2)]
    changed = bytearray(last)
    changed[-1] ^= 1
    with pytest.raises(RefusedError, match="a box that agent 1 has not closed"):
        world.agents[2].receive(3, memoryview(changed), world.now)


def test_messages_of_an_earlier_process_are_refused() -> None:
    """Names of calls are drawn by who calls: what relays kept of a run of the same name and keys says nothing now."""
    kept = []
    for _ in range(2):
        world = World(down=BOTH)
        world.run(LINK_SILENCE + CALL_INTERVAL + 3)
        world.agents[1].send(2, b"numbers")
        world.deliver()
        kept.append(next(message for k, z, message in reversed(world.passed) if (k, z) == (3, 2)))
    assert world.arrived[2][-1] == (1, b"numbers")
    with pytest.raises(RefusedError, match="old: a message of agent 1 by none of the latest calls"):
        world.agents[2].receive(3, memoryview(bytearray(kept[0])), world.now)


def test_long_messages_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detours, "PART_BYTES", 10)
    world = World(down=BOTH, largest=95)
    world.run(LINK_SILENCE + CALL_INTERVAL + 3, talks=False)
    world.run(CALL_INTERVAL, talks=False)
    assert world.paths()[1][2] == (1, 0, 3, 2)
    for length in (0, 9, 10, 11, 95):
        world.agents[1].send(2, bytes(range(length)))
        world.deliver()
    assert [message for _, message in world.arrived[2]] == [bytes(range(length)) for length in (9, 10, 11, 95)]
    world.arrived[2].clear()
    world.agents[1].send(2, bytes(range(95)))
    world.waiting.remove(next(one for one in list(world.waiting)[4:] if one[1] == 0))  # a part is lost, the message too
    world.agents[1].send(2, b"another")
    world.deliver()
    assert world.arrived[2] == [(1, b"another")]
    world.agents[1].send(2, bytes(101))
    with pytest.raises(RefusedError, match="part 0 of 11"):
        world.deliver()


def test_messages_of_too_many_parts_wait_for_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detours, "PART_BYTES", 10)
    world = World(down=BOTH)
    world.run(LINK_SILENCE + 2 * CALL_INTERVAL + 3, talks=False)
    world.passed.clear()
    world.agents[1].send(2, bytes(10 * MAX_PARTS + 1))
    assert [(k, z) for k, z, _ in world.passed] == [(1, 2)]


def edited(message: bytes, change: Any) -> memoryview:
    """A call or a detour with another body, from the same sender."""
    body = msgpack.unpackb(message[HEADER.size :])
    return memoryview(bytearray(message[: HEADER.size] + msgpack.packb(change(body))))


def test_what_no_honest_agent_sends_is_refused() -> None:
    world = World(down=BOTH)
    world.run(LINK_SILENCE + CALL_INTERVAL + 3)
    world.agents[1].send(2, b"numbers")
    detour = next(message for k, z, message in reversed(world.passed) if (k, z) == (1, 0))
    call = next(message for k, z, message in world.passed if (k, z) == (1, 0) and find_kind(message) == CALL)
    zero = world.agents[0]
    for change, reason in [
        (lambda body: 5, "malformed"),
        (lambda body: [[1, 0, 0, 2], body[1]], "malformed"),
        (lambda body: [[0, 1, 3, 2], body[1]], "malformed"),
        (lambda body: [[1, 0, 2], body[1]], "unplanned"),
        (lambda body: [[2, 0, 3, 1], body[1]], "malformed"),  # agent 1 is not the one before on this path
        (lambda body: [[1, 0, 99], body[1]], "malformed"),
        (lambda body: [body[0], 5], "malformed"),
    ]:
        with pytest.raises(RefusedError) as refused:
            zero.receive(1, edited(detour, change), world.now)
        assert refused.value.reason == reason
    for change, reason in [
        (lambda body: [body[0][:5], *body[1:]], "malformed"),
        (lambda body: [body[0], [3], *body[2:]], "malformed"),
        (lambda body: [body[0], [1], -1, body[3]], "malformed"),
        (lambda body: [body[0], [1], 0, body[3]], "signature"),
        (lambda body: [body[0], [2, 1], 0, body[3]], "unplanned"),
    ]:
        with pytest.raises(RefusedError) as refused:
            zero.receive(1, edited(call, change), world.now)
        assert refused.value.reason == reason
    with pytest.raises(RefusedError, match="sender"):
        zero.receive(3, memoryview(bytearray(call)), world.now)


def find_calls(world: World, k: int, z: int) -> list[bytes]:
    """The calls that an agent has sent or passed on to another."""
    return [message for a, b, message in world.passed if (a, b) == (k, z) and find_kind(message) == CALL]


def test_every_agent_passes_a_call_on_once() -> None:
    complete = {k: tuple(z for z in range(M) if z != k) for k in range(M)}
    world = World(complete, down=BOTH)
    world.run(LINK_SILENCE + CALL_INTERVAL + 3)
    for k, near in complete.items():
        for z in near:
            names = [msgpack.unpackb(call[HEADER.size :])[0] for call in find_calls(world, k, z)]
            assert len(names) == len(set(names))
    before = len(world.passed)
    call = edited(find_calls(world, 1, 0)[0], lambda body: [bytes(16), [0, 1], *body[2:]])
    world.agents[0].receive(1, call, world.now)  # as if it had come through agent 0 before
    assert len(world.passed) == before


def test_a_call_that_comes_again_or_by_another_name_begins_no_detour() -> None:
    world = World(down=BOTH)
    world.run(LINK_SILENCE + 1)
    (call,) = find_calls(world, 3, 2)
    assert world.now < LINK_SILENCE + CALL_INTERVAL
    two = world.agents[2]
    two.receive(3, memoryview(bytearray(call)), world.now + 0.9 * CALL_INTERVAL)
    assert not two.detours
    with pytest.raises(RefusedError, match="a call that agent 1 has not made"):
        two.receive(3, edited(call, lambda body: [bytes(16), *body[1:]]), world.now + 0.9 * CALL_INTERVAL)
    assert not two.detours


def test_a_seal_opens_in_its_place_alone() -> None:
    def seals(agent: int, run: str = RUN) -> Any:
        return make_seals(keyring(agent), agent, run)

    box = seals(1).close(2, 1, b"numbers")
    assert seals(2).open(1, 1, box) == b"numbers"
    for opener, sender, what in [
        (seals(2), 1, 0),  # sealed as something else
        (seals(2, "another run"), 1, 1),
        (seals(1), 2, 1),  # sent back
        (seals(2), 0, 1),
        (seals(3), 1, 1),
    ]:
        with pytest.raises(RefusedError, match="has not closed"):
            opener.open(sender, what, box)


def test_calls_are_rate_limited() -> None:
    world = World(down=BOTH)
    world.run(LINK_SILENCE + 1)
    call = next(message for k, z, message in world.passed if (k, z) == (1, 0) and find_kind(message) == CALL)
    before = len(world.passed)

    def call_as(n: int) -> None:
        name = n.to_bytes(16, "little")
        world.agents[0].receive(1, edited(call, lambda body: [name, *body[1:]]), world.now)

    for n in range(CALL_BURST * M):
        call_as(n)
    with pytest.raises(RefusedError, match="too often"):
        call_as(CALL_BURST * M)
    assert len(world.passed) == before + CALL_BURST * M  # agent 0 has one other neighbour


@pytest.mark.parametrize("down", [BOTH, ((0, 1),), ((0, 3), (3, 0))], ids=str)
def test_a_run_over_a_detour_ends_with_the_same_bits(down: tuple[tuple[int, int], ...]) -> None:
    network = Network(problem(topology="ring"), Faults(down=down), seed=0)
    network.run()
    check(network)
    assert all(member.epoch == 1 for member in network.last.values())


def test_a_bridge_that_is_down_is_waited_for() -> None:
    network = Network(problem(topology="line"), Faults(down=BOTH), seed=0)
    while network.now < 100.0:
        network.step()
    assert not network.finals
    assert not any(agent.detours for agent in network.detours.values())
