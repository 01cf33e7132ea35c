"""The wire format: what is sent arrives; any bytes give a message or a named refusal, and nothing else."""

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.runtime.wire import REASONS, Frame, RefusedError, Status, decode, encode

FRAME = Frame(2, 5, (7, 3), "train", "backward", 1, torch.arange(6, dtype=torch.float32).view(3, 2))


def bytes_of(message: Frame | Status, run: str = "run") -> list[bytes]:
    return [bytes(part) for part in encode(message, run)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3,), (0, 4), (2, 3), (2, 3, 4)])
def test_a_frame_arrives_as_it_was_sent(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    rows = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    sent = Frame(1, 2, (3, 4), "full", "forward", 5, rows)
    found = decode(bytes_of(sent), "run", 1)
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
    found = decode(bytes_of(Frame(0, 0, (0, 0), "train", "forward", 0, rows)), "run", 0)
    assert isinstance(found, Frame)
    assert torch.equal(found.rows, rows)


def test_a_status_arrives_as_it_was_sent() -> None:
    sent = Status(3, 9, {0: (0, 20), 3: (0,)}, frozenset({1, 3}), (4, 2))
    assert decode(bytes_of(sent), "run", 3) == sent
    assert decode(bytes_of(Status(3, 9)), "run", 3) == Status(3, 9)


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
        decode(parts, "run", 2)
    assert refused.value.reason == reason


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    rows = torch.tensor([0.0, value])
    with pytest.raises(RefusedError) as refused:
        decode(bytes_of(Frame(0, 0, (0, 0), "train", "consensus", 0, rows)), "run", 0)
    assert refused.value.reason == "not finite"


def refused_or_message(parts: list[bytes]) -> None:
    try:
        found: object = decode(parts, "run", 2)
    except RefusedError as refused:
        found = refused
    assert isinstance(found, (Frame, Status)) or (isinstance(found, RefusedError) and found.reason in REASONS)


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=400, deadline=None)
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
        found = decode([bytes(whole[: len(header)]), bytes(whole[len(header) :])], "run", 2)
    except RefusedError:
        return
    assert isinstance(found, Frame)
    if found.rows.shape == FRAME.rows.shape and found.rows.dtype == FRAME.rows.dtype:
        assert torch.equal(found.rows, FRAME.rows)
