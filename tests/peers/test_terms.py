"""Memberships and decisions as bytes, and the steps that agents can restore across them."""

import random

import pytest
from peers.memberships import make_membership
from torch import float32

from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.signatures import UNSIGNED, derive_verify_key
from gossamer.peers.protocol.statements import StatementTable, VerifiedStatements, sign_restorable
from gossamer.peers.protocol.terms import (
    FINISHED,
    Entry,
    Profile,
    check_decision,
    make_entries,
    name_term,
    pack_members,
    unpack_members,
    unpack_profile,
)
from gossamer.peers.protocol.wire import RefusedError
from gossamer.peers.steps import StepCodes

KEY = 2 * derive_verify_key("7".rjust(40, "0"))
JOINED = Profile("10.0.0.7:5555", KEY, {0: 3, 2: 0}, 17)
TERM = name_term("run", 1, (*make_entries((0, 2)), Entry(7, JOINED.pack())))


def test_a_decision_comes_back() -> None:
    assert unpack_members(pack_members(TERM.entries)) == TERM.entries
    assert unpack_members(FINISHED) is None
    assert unpack_profile(JOINED.pack()) == JOINED


def test_neighbours_are_those_of_shards_and_of_profiles() -> None:
    assert TERM.find_neighbours(0, (1, 2)) == (2, 7)
    assert TERM.find_neighbours(2, ()) == (7,)
    assert TERM.find_neighbours(7, ()) == (0, 2)
    assert TERM.joined == frozenset({2})


def test_names_differ_by_run_number_and_members() -> None:
    names = {
        name_term(run, number, entries).name
        for run in ("a", "b")
        for number in (1, 2)
        for entries in (TERM.entries, TERM.entries[:2])
    }
    assert len(names) == 8
    assert name_term("a", 0, TERM.entries).name == "a"
    assert max(map(len, names)) <= 64


@pytest.mark.parametrize(
    "value",
    [b"", b"X", b"M\x00", pack_members(()), pack_members(make_entries((0, 1))), pack_members(TERM.entries)[:-1]],
)
def test_what_cannot_follow_is_refused(value: bytes) -> None:
    with pytest.raises(RefusedError):
        check_decision(value, TERM)


def test_mutations_of_decisions_are_refused_or_read() -> None:
    good, draw = pack_members(TERM.entries), random.Random(1)
    for _ in range(3000):
        changed = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(changed))
            match draw.randrange(3):
                case 0:
                    changed[place] = draw.randrange(256)
                case 1:
                    del changed[place:]
                case _:
                    changed[place:place] = bytes([draw.randrange(256)])
            if not changed:
                break
        try:
            found = unpack_members(bytes(changed))
        except RefusedError:
            continue
        assert found is None or unpack_members(pack_members(found)) == found


def test_codes_of_steps_ascend_with_memberships() -> None:
    codes = [StepCodes(v, 10).encode(v, t) for v in range(3) for t in range(11)]
    assert codes == sorted(set(codes))
    assert all(StepCodes(2, 10).decode(StepCodes(0, 10).encode(v, t)) == (v, t) for v in range(3) for t in range(11))
    assert StepCodes(1, 10).decode(0) is None
    assert StepCodes(0, 10).last + 1 < StepCodes(1, 10).first - 1  # closing and planning have numbers of their own


@pytest.mark.parametrize(
    ("steps", "expected", "unable"),
    [
        ({0: (0, 1, 5, 20), 1: (0, 1, 5, 20)}, 20, ()),
        ({0: (0, 1, 5, 20), 1: (0, 1, 5)}, 5, ()),
        ({0: (0, 1, 5, 20), 1: (0, 1, 5, 20), 2: ()}, 5, (2,)),  # 2 takes over weights when all plan, before step 20
        ({0: (0, 1, 5, 20), 1: (0, 1, 5, 20), 2: (20,)}, 20, ()),
        ({0: (0, 1, 5, 20), 1: (20,), 2: ()}, 5, (1, 2)),
        ({0: (0,), 1: (20,), 2: (20,)}, 0, (1, 2)),  # agent 0 has lost its disk: all begin anew
        ({1: (), 2: ()}, 0, (1, 2)),
        ({1: (20,), 2: ()}, None, ()),  # of those that have joined one has lost its checkpoints: it joins anew
    ],
)
def test_the_latest_step_that_all_can_restore(
    steps: dict[int, tuple[int, ...]], expected: int | None, unable: tuple[int, ...]
) -> None:
    joined = frozenset({1, 2}) if any(0 not in one for one in steps.values()) else frozenset[int]()
    config = ProtocolConfig(make_membership(0, 3, (1, 2)), float32, 40, 8, 1, joined=joined, first=14)
    table = StatementTable(config)
    table.open_epoch(1, steps.get(0, ()))
    if 0 not in steps:
        table.restorable.clear()
    others = {k: sign_restorable("run", UNSIGNED, k, 1, 1, one) for k, one in steps.items() if k}
    table.add(VerifiedStatements(restorable=others))
    assert table.find_common_step() == expected
    if expected is not None:
        assert table.find_unable(expected) == unable
