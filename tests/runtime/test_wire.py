"""The wire format: what is sent arrives; any bytes give a message or a named refusal, and nothing else."""

import contextlib

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.agents import Link, Outbox
from gossamer.agents.exchange import Phase
from gossamer.errors import GossamerError
from gossamer.runtime.member import Member
from gossamer.runtime.place import Place
from gossamer.runtime.wire import (
    HEAD,
    PLACE,
    REASONS,
    START,
    Frame,
    RefusedError,
    Status,
    decode,
    encode,
    largest_status,
    payload,
)

FRAME = Frame(2, 5, (0, 0), "train", "backward", 1, torch.arange(6, dtype=torch.float32).view(3, 2))


STANDS = Status(3, 9, {0: (0, 20), 3: (0,)}, frozenset({1, 3}), (4, 2))
HEADS = {"version": 8, "kind": 8, "sender": 32, "run": 128, "epoch": 64}  # bits of HEAD's fields
PLACES = {"step": 64, "slot": 32, "index": 32, "plan": 8, "phase": 8, "dtype": 8, "dims": 8, "checksum": 32}
FIELDS = HEADS | PLACES | dict.fromkeys("abc", 32)


def read(message: bytes, sender: int = 2, sealed: bool = False) -> Frame | Status:
    """Both stages of reading."""
    found = decode(message, "run", sender)
    if isinstance(found, Status):
        return found
    told = (found.sender, found.epoch, found.position, found.plan, found.phase, found.index)
    return Frame(*told, payload(found, message, sealed))


def changed(message: bytes, **fields: int | bytes) -> bytes:
    """A frame with other values in its header."""
    values = dict(zip(FIELDS, (*HEAD.unpack_from(message), *PLACE.unpack_from(message, HEAD.size)), strict=True))
    assert fields.keys() <= values.keys()
    whole = list((values | fields).values())
    return HEAD.pack(*whole[:5]) + PLACE.pack(*whole[5:]) + message[START:]


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
        part = memoryview(arrived)[offset : offset + len(message)]
        part[:] = message
        announced = decode(part, "run", 2)
        assert not isinstance(announced, Status)
        rows = payload(announced, part)
        assert torch.equal(rows, FRAME.rows)
        assert rows.data_ptr() % 4 == 0
        arrived[offset + START] ^= 1
        assert torch.equal(rows, FRAME.rows) == (offset == 1)  # a copy does not follow


def test_a_sealed_link_needs_no_checksum_and_an_open_one_does() -> None:
    sealed = encode(FRAME, "run", sealed=True)
    found = read(sealed, sealed=True)
    assert isinstance(found, Frame)
    assert torch.equal(found.rows, FRAME.rows)
    with pytest.raises(RefusedError, match="checksum"):
        read(sealed)


def test_a_status_of_a_thousand_agents_on_a_line_fits() -> None:
    """On a line distant agents are far apart, so that each keeps many checkpoints; the largest numbers are taken."""
    m, keep, last = 1000, 1001, 2**63 - 1
    steps = (last, 0, *range(last - keep, last))
    full = Status(m - 1, last, dict.fromkeys(range(m), steps), frozenset(range(m)), (last, last))
    message = encode(full, "r" * 200)
    limit = largest_status(m, keep)
    assert len(message) <= limit < 1.1 * len(message)
    assert decode(message, "r" * 200, m - 1, limit) == full
    with pytest.raises(RefusedError, match="malformed"):
        decode(message, "r" * 200, m - 1, len(message) - 1)


SENT, STANDING = encode(FRAME, "run"), encode(Status(2, 5), "run")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "malformed"),
        (SENT[: HEAD.size - 1], "malformed"),
        (SENT[: START - 1], "malformed"),
        (SENT[:-1], "malformed"),
        (SENT + b"x", "malformed"),
        (SENT[:START] + bytes(24), "checksum"),
        (STANDING[: HEAD.size], "malformed"),
        (STANDING[:-1], "malformed"),
        (STANDING + b"x", "malformed"),
        (STANDING[: HEAD.size] + msgpack.packb([1, 2]), "malformed"),
        (STANDING[: HEAD.size] + bytes(1 << 17), "malformed"),
        (b"\xff" * 100, "version"),
        (changed(SENT, version=1), "version"),
        (encode(FRAME, "another"), "run"),
        (changed(SENT, sender=1), "sender"),
        (changed(SENT, kind=0), "malformed"),
        (changed(SENT, kind=2), "malformed"),
        (changed(SENT, b=3), "malformed"),
        (changed(SENT, c=1), "malformed"),
        (changed(SENT, a=2**32 - 1, b=2**32 - 1), "malformed"),
        (changed(SENT, dims=3, a=0, b=2**32 - 1, c=2**32 - 1)[:START], "malformed"),
        (changed(SENT, dims=4), "malformed"),
        (changed(SENT, dims=1), "malformed"),
        (changed(SENT, dtype=3), "malformed"),
        (changed(SENT, plan=3), "malformed"),
        (changed(SENT, phase=4), "malformed"),
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

    def are_all_done(self) -> bool:
        return False

    def set_all_done(self) -> None:
        pass

    def is_done(self) -> bool:
        return self.done

    def set_done(self) -> None:
        self.done = True


def waiting_member(refused: list[tuple[int, RefusedError]] | None = None) -> Member:
    """Agent 0 of two neighbours in epoch 5, which waits at (0, 0) for agent 2's rows [3, 2] of the backward pass 1."""

    def program(step: int):  # type: ignore[no-untyped-def]
        while True:
            yield "train", 0, Outbox(Phase.BACKWARD, 1, {}, {Link(2, 0): (3, 2)})

    note = (lambda sender, error: None) if refused is None else (lambda sender, error: refused.append((sender, error)))
    place = Place(0, 3, (2,), "run", torch.float32, 10, 3, 77)
    member = Member(
        place,
        Memory(),
        program,
        lambda position: ("train", "backward", 1, None, {2: (3, 2)}) if position[0] < 10 and position[1] < 5 else None,
        lambda receiver, message: None,
        on_refused=note,
    )
    member.receive(2, encode(Status(2, 5, {1: (8, 0), 2: (9, 0)}), "run"), 0.0)
    assert (member.epoch, member.position, member.waiting_for) == (5, (0, 0), (2,))
    return member


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
        member.receive(2, message[:START] + bytes(24), 0.0)
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
@given(st.binary(max_size=200), st.sampled_from([0, HEAD.size, START]))
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
@given(st.dictionaries(st.sampled_from(("restorable", "done", "waiting")), VALUES, max_size=5))
def test_any_status_gives_a_message_or_a_named_refusal(fields: dict[str, object]) -> None:
    message = encode(Status(2, 1, {0: (0,)}, frozenset({1}), (2, 3)), "run")
    tables = msgpack.unpackb(message[HEAD.size :], strict_map_key=False)
    refused_or_message(message[: HEAD.size] + msgpack.packb({**tables, **fields}))


@settings(max_examples=250, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([name for name in FIELDS if name != "run"]),
        st.integers(0, 5) | st.integers(0, 2**64 - 1),
        max_size=6,
    ),
    st.sampled_from([START, len(SENT)]),
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
