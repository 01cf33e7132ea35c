"""The wire format: what is sent arrives; any bytes give a message or a named refusal, and nothing else."""

import contextlib
from collections.abc import Sequence

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.memberships import make_membership
from peers.network import keyring

from gossamer.agents import Link, Outbox
from gossamer.agents.exchange import Phase
from gossamer.errors import GossamerError
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.resending import REPLY_BURST
from gossamer.peers.protocol.signatures import UNSIGNED
from gossamer.peers.protocol.statements import max_status_bytes, sign_done, sign_restorable
from gossamer.peers.protocol.wire import (
    FRAME_HEADER,
    HEADER,
    PAYLOAD_OFFSET,
    REASONS,
    Frame,
    RefusedError,
    Status,
    decode,
    encode,
    read_payload,
)

FRAME = Frame(2, 5, (0, 0), "train", "backward", 1, torch.arange(6, dtype=torch.float32).view(3, 2))


STANDS = Status(3, 9, (b"fact", bytes(300)), (4, 2))
HEADS = {"version": 8, "kind": 8, "sender": 32, "run": 128, "epoch": 64}  # bits of HEADER's fields
PLACES = {"step": 64, "slot": 32, "index": 32, "plan": 8, "phase": 8, "dtype": 8, "dims": 8, "checksum": 32}
FIELDS = HEADS | PLACES | dict.fromkeys("abc", 32)


def read(message: bytes, sender: int = 2, encrypted: bool = False) -> Frame | Status:
    """Both stages of reading."""
    found = decode(message, "run", sender)
    if isinstance(found, Status):
        return found
    key = (found.sender, found.epoch, found.position, found.plan, found.phase, found.index)
    return Frame(*key, read_payload(found, message, encrypted)[0])


def changed(message: bytes, **fields: int | bytes) -> bytes:
    """A frame with other values in its header."""
    values = dict(
        zip(FIELDS, (*HEADER.unpack_from(message), *FRAME_HEADER.unpack_from(message, HEADER.size)), strict=True)
    )
    assert fields.keys() <= values.keys()
    whole = list((values | fields).values())
    return HEADER.pack(*whole[:5]) + FRAME_HEADER.pack(*whole[5:]) + message[PAYLOAD_OFFSET:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3,), (0, 4), (2, 3), (2, 3, 4)])
def test_a_frame_arrives_as_it_was_sent(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    rows = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    sent = Frame(1, 2, (3, 4), "full", "forward", 5, rows)
    found = read(encode(sent, "run"), 1)
    assert isinstance(found, Frame)
    assert torch.equal(found.rows, rows)
    assert found.rows.dtype == dtype
    assert (found.sender, found.epoch, found.position, found.plan, found.phase, found.index) == (
        1,
        2,
        (3, 4),
        "full",
        "forward",
        5,
    )


def test_a_view_with_gaps_is_sent_whole() -> None:
    rows = torch.arange(12, dtype=torch.float64).view(3, 4).T
    found = read(encode(Frame(0, 0, (0, 0), "train", "forward", 0, rows), "run"), 0)
    assert isinstance(found, Frame)
    assert torch.equal(found.rows, rows)


def test_a_status_arrives_as_it_was_sent() -> None:
    assert read(encode(STANDS, "run"), 3) == STANDS
    assert read(encode(Status(3, 9), "run"), 3) == Status(3, 9)


def test_numbers_stay_where_they_arrived_unless_they_lie_askew() -> None:
    message = encode(FRAME, "run")
    arrived = torch.zeros(len(message) + 8, dtype=torch.uint8).numpy()
    for offset in (0, 4, 1):
        part = arrived.data[offset : offset + len(message)]
        part[:] = message
        announced = decode(part, "run", 2)
        assert not isinstance(announced, Status)
        rows, size = read_payload(announced, part)
        assert size == 5.0
        assert torch.equal(rows, FRAME.rows)
        assert rows.data_ptr() % 4 == 0
        arrived[offset + PAYLOAD_OFFSET] ^= 1
        assert torch.equal(rows, FRAME.rows) == (offset == 1)  # a copy does not follow


def test_an_encrypted_link_needs_no_checksum_and_an_open_one_does() -> None:
    encrypted = encode(FRAME, "run", encrypted=True)
    found = read(encrypted, encrypted=True)
    assert isinstance(found, Frame)
    assert torch.equal(found.rows, FRAME.rows)
    with pytest.raises(RefusedError, match="checksum"):
        read(encrypted)


def test_a_status_of_a_thousand_agents_on_a_line_fits() -> None:
    """On a line distant agents are far apart, so that each keeps many checkpoints; the largest numbers are taken."""
    m, keep, last, signatures = 1000, 1001, 2**63 - 1, keyring(0)
    steps = sign_restorable("run", signatures, 0, last, last, range(last - keep - 1, last)).content
    end = sign_done("run", signatures, 0).content
    full = Status(m - 1, last, (steps, end) * m, (last, last))
    message = encode(full, "r" * 200)
    config = ProtocolConfig(make_membership(0, m, (1,)), torch.float32, 10, keep, 7, signatures=signatures)
    limit = max_status_bytes(config)
    assert len(message) <= limit < 1.1 * len(message)
    assert decode(message, "r" * 200, m - 1, limit) == full
    with pytest.raises(RefusedError, match="malformed"):
        decode(message, "r" * 200, m - 1, len(message) - 1)


SENT, STANDING = encode(FRAME, "run"), encode(Status(2, 5), "run")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "malformed"),
        (SENT[: HEADER.size - 1], "malformed"),
        (SENT[: PAYLOAD_OFFSET - 1], "malformed"),
        (SENT[:-1], "malformed"),
        (SENT + b"x", "malformed"),
        (SENT[:PAYLOAD_OFFSET] + bytes(24), "checksum"),
        (STANDING[: HEADER.size], "malformed"),
        (STANDING[:-1], "malformed"),
        (STANDING + b"x", "malformed"),
        (STANDING[: HEADER.size] + msgpack.packb([1, 2]), "malformed"),
        (STANDING[: HEADER.size] + bytes(1 << 17), "malformed"),
        (b"\xff" * 100, "version"),
        (changed(SENT, version=1), "version"),
        (encode(FRAME, "another"), "run"),
        (changed(SENT, sender=1), "sender"),
        (changed(SENT, kind=0), "malformed"),
        (changed(SENT, kind=2), "malformed"),
        (changed(SENT, b=3), "malformed"),
        (changed(SENT, c=1), "malformed"),
        (changed(SENT, a=2**32 - 1, b=2**32 - 1), "malformed"),
        (changed(SENT, dims=3, a=0, b=2**32 - 1, c=2**32 - 1)[:PAYLOAD_OFFSET], "malformed"),
        (changed(SENT, dims=4), "malformed"),
        (changed(SENT, dims=1), "malformed"),
        (changed(SENT, dtype=3), "malformed"),
        (changed(SENT, plan=6), "malformed"),
        (changed(SENT, phase=6), "malformed"),
        (changed(SENT, checksum=7), "checksum"),
    ],
)
def test_what_does_not_belong_is_refused_with_its_reason(message: bytes, reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read(message)
    assert refused.value.reason == reason


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    rows = torch.tensor([0.0, value])
    with pytest.raises(RefusedError) as refused:
        read(encode(Frame(0, 0, (0, 0), "train", "consensus", 0, rows), "run"), 0)
    assert refused.value.reason == "not finite"


class Memory:
    """A store that survives nothing."""

    number, done = 4, False

    def epoch(self) -> int:
        return self.number

    def set_epoch(self, epoch: int) -> None:
        self.number = epoch

    def steps(self) -> list[int]:
        return [0]

    def all_done(self) -> list[bytes]:
        return []

    def set_all_done(self, facts: Sequence[bytes]) -> None:
        pass

    def discard(self, diverged: int, begun: int) -> None:
        pass

    def is_done(self) -> bool:
        return self.done

    def set_done(self) -> None:
        self.done = True


BACKWARD = ExpectedMessages("train", "backward", 1, None, {2: (3, 2)})


def waiting_member(refused: list[tuple[int, RefusedError]] | None = None) -> Member:
    """Agent 0 of two neighbours in epoch 5, which waits at (0, 0) for agent 2's rows [3, 2] of the backward pass 1."""

    def program(step: int, session: bytes, unable: tuple[int, ...]):  # type: ignore[no-untyped-def]
        while True:
            yield PlannedExchange("train", 0, Outbox(Phase.BACKWARD, 1, {}, {Link(2, 0): (3, 2)}))

    note = (lambda sender, error: None) if refused is None else (lambda sender, error: refused.append((sender, error)))
    config = ProtocolConfig(make_membership(0, 3, (2,)), torch.float32, 10, 3, 77)
    member = Member(
        config,
        Memory(),
        program,
        lambda position: BACKWARD if position[0] < 10 and position[1] < 5 else None,
        lambda receiver, message: None,
        on_refused=note,
    )
    facts = (sign_restorable("run", UNSIGNED, k, 5, k + 7, (0,)).content for k in (1, 2))
    member.receive(2, encode(Status(2, 5, tuple(facts)), "run"), 0.0)
    assert (member.epoch, member.position, member.waiting_for) == (5, (0, 0), (2,))
    return member


def test_facts_that_are_known_do_not_count_in_the_next_epoch() -> None:
    """Else whoever replays them makes an agent train with them, and then call an honest one a liar."""
    member = waiting_member()
    facts = tuple(fact.content for fact in member.statements.restorable.values())
    member.receive(2, encode(Status(2, 6, facts), "run"), 0.0)
    assert member.refused == {"signature": 1}
    assert member.epoch == 5


def test_new_epochs_are_opened_only_so_often() -> None:
    member = waiting_member()
    for epoch in range(6, 2006):
        fact = sign_restorable("run", UNSIGNED, 2, epoch, 9, (0,)).content
        member.receive(2, encode(Status(2, epoch, (fact,)), "run"), 0.0)
    assert member.epoch <= 5 + REPLY_BURST
    assert member.refused["too often"] == 2005 - member.epoch
    before = member.epoch
    fact = sign_restorable("run", UNSIGNED, 2, 3000, 9, (0,)).content
    member.receive(2, encode(Status(2, 3000, (fact,)), "run"), 1.0)  # the bucket has filled again
    assert member.epoch == 3000 > before


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "not finite"),
        ({"epoch": 4}, "old"),
        ({"epoch": 6}, "early"),
        ({"slot": 9}, "unplanned"),
        ({"step": 9}, "early"),
        ({"step": 2**64 - 1}, "unplanned"),
        ({"epoch": 2**64 - 1}, "early"),
        ({"phase": 0}, "unplanned"),
        ({"plan": 0}, "unplanned"),
        ({"index": 0}, "unplanned"),
        ({"a": 2, "b": 3}, "unplanned"),
        ({"dtype": 1, "dims": 1, "b": 0}, "unplanned"),
    ],
)
def test_the_plan_is_asked_before_a_number_is_looked_at(fields: dict[str, int], reason: str) -> None:
    refused: list[tuple[int, RefusedError]] = []
    member = waiting_member(refused)
    rows = torch.full((3, 2), float("nan"))
    message = changed(encode(Frame(2, 5, (0, 0), "train", "backward", 1, rows), "run"), **fields)
    member.receive(2, message, 0.0)
    assert [(sender, error.reason) for sender, error in refused] == [(2, reason)]
    if fields:  # and a payload that is not even what its checksum says is refused for the same reason
        member.receive(2, message[:PAYLOAD_OFFSET] + bytes(24), 0.0)
        assert member.refused == {reason: 2}


def refused_or_message(message: bytes) -> None:
    """At both borders: the wire format's, and a member's in the middle of a training."""
    try:
        found: object = read(message)
    except RefusedError as refused:
        found = refused
    assert isinstance(found, (Frame, Status)) or (isinstance(found, RefusedError) and found.reason in REASONS)
    member = waiting_member()
    with contextlib.suppress(GossamerError):  # a neighbour may say that this agent's disk has lost its result
        member.receive(2, message, 0.0)
    assert set(member.refused) <= set(REASONS)


@settings(max_examples=250, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([0, HEADER.size, PAYLOAD_OFFSET]))
def test_any_bytes_give_a_message_or_a_named_refusal(message: bytes, kept: int) -> None:
    for sound in (SENT, STANDING):
        refused_or_message(sound[:kept] + message)


NUMBERS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
NAMES = st.text(max_size=9)
VALUES = st.recursive(
    NUMBERS | NAMES | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 9) | NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=250, deadline=None)
@given(st.dictionaries(st.sampled_from(("facts", "waiting")), VALUES, max_size=5))
def test_any_status_gives_a_message_or_a_named_refusal(fields: dict[str, object]) -> None:
    message = encode(Status(2, 1, (sign_done("run", UNSIGNED, 1).content,), (2, 3)), "run")
    tables = msgpack.unpackb(message[HEADER.size :])
    refused_or_message(message[: HEADER.size] + msgpack.packb({**tables, **fields}))


@settings(max_examples=250, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=3), st.integers(4, 6), st.booleans())
def test_any_facts_give_a_message_or_a_named_refusal(facts: list[bytes], epoch: int, own: bool) -> None:
    mine = (sign_restorable("run", UNSIGNED, 2, epoch, 9, (0,)).content,) if own else ()
    refused_or_message(encode(Status(2, epoch, (*mine, *facts)), "run"))


@settings(max_examples=250, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([name for name in FIELDS if name != "run"]),
        st.integers(0, 5) | st.integers(0, 2**64 - 1),
        max_size=6,
    ),
    st.sampled_from([PAYLOAD_OFFSET, len(SENT)]),
)
def test_any_header_gives_a_message_or_a_named_refusal(fields: dict[str, int], length: int) -> None:
    fitting = {name: value % 2 ** FIELDS[name] for name, value in fields.items()}
    refused_or_message(changed(SENT, **fitting)[:length])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_never_changes_a_number_unseen(place: int, value: int) -> None:
    whole = bytearray(SENT)
    whole[place % len(whole)] ^= value
    try:
        found = read(bytes(whole))
    except RefusedError:
        return
    assert isinstance(found, Frame)
    if found.rows.shape == FRAME.rows.shape and found.rows.dtype == FRAME.rows.dtype:
        assert torch.equal(found.rows, FRAME.rows)
