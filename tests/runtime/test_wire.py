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
from gossamer.runtime.wire import REASONS, Frame, RefusedError, Status, decode, encode, largest_header, payload

FRAME = Frame(2, 5, (0, 0), "train", "backward", 1, torch.arange(6, dtype=torch.float32).view(3, 2))


def bytes_of(message: Frame | Status, run: str = "run", sealed: bool = False) -> list[bytes]:
    return [bytes(part) for part in encode(message, run, sealed)]


def read(parts: list[bytes], sender: int = 2, sealed: bool = False) -> Frame | Status:
    """Both stages of reading."""
    found = decode(parts, "run", sender)
    if isinstance(found, Status):
        return found
    told = (found.sender, found.epoch, found.position, found.plan, found.phase, found.index)
    return Frame(*told, payload(found, parts[1], sealed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3,), (0, 4), (2, 3), (2, 3, 4)])
def test_a_frame_arrives_as_it_was_sent(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    rows = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    sent = Frame(1, 2, (3, 4), "full", "forward", 5, rows)
    found = read(bytes_of(sent), 1)
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
    found = read(bytes_of(Frame(0, 0, (0, 0), "train", "forward", 0, rows)), 0)
    assert isinstance(found, Frame)
    assert torch.equal(found.rows, rows)


def test_a_status_arrives_as_it_was_sent() -> None:
    sent = Status(3, 9, {0: (0, 20), 3: (0,)}, frozenset({1, 3}), (4, 2))
    assert read(bytes_of(sent), 3) == sent
    assert read(bytes_of(Status(3, 9)), 3) == Status(3, 9)


def test_numbers_stay_where_they_arrived_unless_they_lie_askew() -> None:
    header, numbers = bytes_of(FRAME)
    arrived = torch.zeros(len(numbers) + 8, dtype=torch.uint8).numpy()
    for offset in (0, 4, 1):
        part = memoryview(arrived)[offset : offset + len(numbers)]
        part[:] = numbers
        announced = decode([header, part], "run", 2)
        assert not isinstance(announced, Status)
        rows = payload(announced, part)
        assert torch.equal(rows, FRAME.rows)
        assert rows.data_ptr() % 4 == 0
        arrived[offset] ^= 1
        assert torch.equal(rows, FRAME.rows) == (offset == 1)  # a copy does not follow


def test_a_sealed_link_needs_no_checksum_and_an_open_one_does() -> None:
    sealed = bytes_of(FRAME, sealed=True)
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
    parts = bytes_of(full, run="r" * 200)
    limit = largest_header(m, keep)
    assert len(parts[0]) <= limit < 1.1 * len(parts[0])
    assert decode(parts, "r" * 200, m - 1, limit) == full
    with pytest.raises(RefusedError, match="malformed"):
        decode(parts, "r" * 200, m - 1, len(parts[0]) - 1)


def changed(**fields: object) -> list[bytes]:
    header, payload = bytes_of(FRAME)
    return [msgpack.packb({**msgpack.unpackb(header), **fields}), payload]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "malformed"),
        ([b""], "malformed"),
        ([b"\xff" * 40], "malformed"),
        ([bytes_of(FRAME)[0]], "malformed"),
        ([*bytes_of(FRAME), b"more"], "malformed"),
        ([bytes_of(FRAME)[0], bytes_of(FRAME)[1][:-1]], "malformed"),
        ([bytes_of(FRAME)[0][:-3], bytes_of(FRAME)[1]], "malformed"),
        ([bytes_of(FRAME)[0], bytes(24)], "checksum"),
        ([msgpack.packb([1, 2])], "malformed"),
        ([b"\x00" * (1 << 17), b""], "malformed"),
        (changed(version=2), "version"),
        (changed(version=None), "version"),
        (changed(run="another"), "run"),
        (changed(sender=1), "sender"),
        (changed(sender=True), "sender"),
        (changed(epoch=-1), "malformed"),
        (changed(epoch="5"), "malformed"),
        (changed(epoch=2**64 - 1), "malformed"),
        (changed(shape=[3, 3]), "malformed"),
        (changed(shape=[2**62, 2**62]), "malformed"),
        (changed(shape=[-3, -2]), "malformed"),
        (changed(shape=[1, 1, 1, 6]), "malformed"),
        (changed(shape="32"), "malformed"),
        (changed(dtype="float16"), "malformed"),
        (changed(dtype=["float32"]), "malformed"),
        (changed(plan="other"), "malformed"),
        (changed(phase="sideways"), "malformed"),
        (changed(phase=["forward"]), "malformed"),
        (changed(position=[1]), "malformed"),
        (changed(position=[1, -2]), "malformed"),
        (changed(kind="status"), "malformed"),
        (changed(kind=None), "malformed"),
        (changed(checksum="x"), "checksum"),
    ],
)
def test_what_does_not_belong_is_refused_with_its_reason(parts: list[bytes], reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read(parts)
    assert refused.value.reason == reason


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    rows = torch.tensor([0.0, value])
    with pytest.raises(RefusedError) as refused:
        read(bytes_of(Frame(0, 0, (0, 0), "train", "consensus", 0, rows)), 0)
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
        lambda receiver, parts: None,
        on_refused=note,
    )
    member.receive(2, bytes_of(Status(2, 5, {1: (8, 0), 2: (9, 0)})), 0.0)
    assert (member.epoch, member.position, member.waiting_for) == (5, (0, 0), (2,))
    return member


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "not finite"),
        ({"epoch": 4}, "old"),
        ({"epoch": 6}, "early"),
        ({"position": [0, 9]}, "unplanned"),
        ({"position": [9, 0]}, "early"),
        ({"phase": "forward"}, "unplanned"),
        ({"plan": "full"}, "unplanned"),
        ({"index": 0}, "unplanned"),
        ({"shape": [2, 3]}, "unplanned"),
        ({"dtype": "float64", "shape": [3]}, "unplanned"),
    ],
)
def test_the_plan_is_asked_before_a_number_is_looked_at(fields: dict[str, object], reason: str) -> None:
    refused: list[tuple[int, RefusedError]] = []
    member = waiting_member(refused)
    rows = torch.full((3, 2), float("nan"))
    header, numbers = bytes_of(Frame(2, 5, (0, 0), "train", "backward", 1, rows))
    member.receive(2, [msgpack.packb({**msgpack.unpackb(header), **fields}), numbers], 0.0)
    assert [(sender, error.reason) for sender, error in refused] == [(2, reason)]
    if fields:  # and a payload that is not even what its checksum says is refused for the same reason
        member.receive(2, [msgpack.packb({**msgpack.unpackb(header), **fields}), bytes(24)], 0.0)
        assert member.refused == {reason: 2}


def refused_or_message(parts: list[bytes]) -> None:
    """At both borders: the wire format's, and a member's in the middle of a training."""
    try:
        found: object = read(parts)
    except RefusedError as refused:
        found = refused
    assert isinstance(found, (Frame, Status)) or (isinstance(found, RefusedError) and found.reason in REASONS)
    member = waiting_member()
    with contextlib.suppress(GossamerError):  # a neighbour may say that this agent's disk has lost its result
        member.receive(2, parts, 0.0)
    assert set(member.refused) <= set(REASONS)


@settings(max_examples=250, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes_give_a_message_or_a_named_refusal(parts: list[bytes]) -> None:
    refused_or_message(parts)


FIELDS = (
    "version",
    "kind",
    "run",
    "sender",
    "epoch",
    "position",
    "plan",
    "phase",
    "index",
    "dtype",
    "shape",
    "checksum",
)
NUMBERS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
NAMES = st.text(max_size=9)
VALUES = st.recursive(
    NUMBERS | NAMES | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 9) | NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=250, deadline=None)
@given(
    st.dictionaries(st.sampled_from((*FIELDS, "checksum", "restorable", "done", "waiting")), VALUES, max_size=5),
    st.booleans(),
)
def test_any_header_gives_a_message_or_a_named_refusal(fields: dict[str, object], status: bool) -> None:
    header, *payload = bytes_of(Status(2, 1, {0: (0,)}, frozenset({1}), (2, 3)) if status else FRAME)
    refused_or_message([msgpack.packb({**msgpack.unpackb(header, strict_map_key=False), **fields}), *payload])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_never_changes_a_number_unseen(place: int, value: int) -> None:
    header, payload = bytes_of(FRAME)
    whole = bytearray(header + payload)
    place %= len(whole)
    whole[place] ^= value
    try:
        found = read([bytes(whole[: len(header)]), bytes(whole[len(header) :])])
    except RefusedError:
        return
    assert isinstance(found, Frame)
    if found.rows.shape == FRAME.rows.shape and found.rows.dtype == FRAME.rows.dtype:
        assert torch.equal(found.rows, FRAME.rows)
