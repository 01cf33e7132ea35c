"""The wire format: a fixed header and the bytes behind it. Nothing is believed before it is checked.

Two kinds of messages cross a link. A Frame carries the rows or weights of one exchange of Algorithm 1: HEAD, PLACE and
raw numbers. A Status says where an agent stands; it may be lost, doubled or late without harm: HEAD and a msgpack map.

Reading has two stages. `decode` reads the header alone: what it gives of a frame is only Announced, to be held against
the plan. `payload` then looks at the numbers, and leaves them where they arrived.
"""

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack
import torch
from torch import Tensor

VERSION = 3
HEAD = struct.Struct("<BBxxI16sQ")  # version, kind, sender, the run's digest, epoch
PLACE = struct.Struct("<QIIBBBBI3I4x")  # step, slot, index, plan, phase, type, dimensions, checksum, shape
START = HEAD.size + PLACE.size  # where a frame's numbers begin: 72 bytes
STATUS, FRAME = 0, 1
DTYPES = (torch.float32, torch.float64, torch.uint8)
PLANS = ("full", "train", "site")  # evaluation; training; what sites plan before it
PHASES = ("forward", "backward", "consensus", "planning")
Position = tuple[int, int]  # step, and which exchange of the step
Bytes = bytes | memoryview

_DTYPE = {dtype: number for number, dtype in enumerate(DTYPES)}
_PLAN = {plan: number for number, plan in enumerate(PLANS)}
_PHASE = {phase: number for number, phase in enumerate(PHASES)}


class RefusedError(Exception):
    """A message that is not what the protocol allows; `reason` is one of REASONS."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


REASONS = (
    "malformed",  # not a header of ours, or not the bytes that it announces
    "version",  # another version of this format
    "run",  # another run's
    "sender",  # names an agent that its key does not belong to
    "checksum",
    "unplanned",  # a shape, type, phase or moment that the plan does not have
    "old",  # of an epoch or a step that is over
    "early",  # of an epoch or a step that has not begun here; it is asked for again
    "duplicate",
    "not finite",
    "too large",  # a number that no training that works has (magnitudes.py)
    "signature",  # a fact that its subject has not signed, or of another epoch (facts.py)
    "contradiction",  # two facts about an agent in one epoch, both signed
    "too often",  # more statuses than are answered (kept.py)
)


@dataclass(slots=True)
class _Sent:
    """Whose a frame is, and to which exchange it belongs."""

    sender: int
    epoch: int
    position: Position
    plan: str
    phase: str
    index: int


@dataclass(slots=True)
class Frame(_Sent):
    """What one agent sends another in one exchange."""

    rows: Tensor


@dataclass(slots=True)
class Announced(_Sent):
    """What a frame's header says of it; its numbers have not been looked at."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    checksum: int


@dataclass(frozen=True)
class Status:
    """Where an agent stands in an epoch: the facts that it knows (facts.py), and what it waits for."""

    sender: int
    epoch: int
    facts: tuple[bytes, ...] = ()
    waiting: Position | None = None


@lru_cache(maxsize=8)
def digest_of(run: str) -> bytes:
    """A run's name in a header and in a signed statement."""
    return hashlib.blake2b(run.encode(), digest_size=16).digest()


def encode(message: Frame | Status, run: str, sealed: bool = False) -> bytes:
    """The bytes of a message. A link that is `sealed` guards every byte itself: there a frame has no checksum."""
    if isinstance(message, Status):
        packed: bytes = msgpack.packb({"facts": message.facts, "waiting": message.waiting})
        return HEAD.pack(VERSION, STATUS, message.sender, digest_of(run), message.epoch) + packed
    shape, numbers = message.rows.shape, message.rows.contiguous().numpy(force=True).data
    return b"".join(
        (
            HEAD.pack(VERSION, FRAME, message.sender, digest_of(run), message.epoch),
            PLACE.pack(
                *message.position,
                message.index,
                _PLAN[message.plan],
                _PHASE[message.phase],
                _DTYPE[message.rows.dtype],
                len(shape),
                0 if sealed else zlib.crc32(numbers),
                *shape,
                *(0,) * (3 - len(shape)),
            ),
            numbers,
        )
    )


def largest_status(num_agents: int, facts: Iterable[int]) -> int:
    """Bytes that no status of such a run exceeds: about every agent facts of so many bytes."""
    return HEAD.size + 64 + num_agents * sum(5 + size for size in facts)  # of a msgpack string's beginning, at most


def decode(message: Bytes, run: str, sender: int, longest: int = 1 << 16) -> Announced | Status:
    """A status, or what a frame announces, of this run from the agent whose key the link belongs to. A payload is
    measured and not read; no status is longer than `longest`."""
    size = len(message)
    if size < HEAD.size:
        raise RefusedError("malformed", f"{size} bytes")
    version, kind, named, digest, epoch = HEAD.unpack_from(message)
    if version != VERSION:
        raise RefusedError("version", str(version))
    if digest != digest_of(run):
        raise RefusedError("run", digest.hex())
    if named != sender:
        raise RefusedError("sender", str(named))
    if kind == FRAME and size >= START:
        return _announced(message, sender, epoch)
    if kind == STATUS and size <= longest:
        return _status(message[HEAD.size :], sender, epoch)
    raise RefusedError("malformed", f"kind {kind} with {size} bytes")


def _announced(message: Bytes, sender: int, epoch: int) -> Announced:
    step, slot, index, plan, phase, dtype, dims, checksum, *shape = PLACE.unpack_from(message, HEAD.size)
    if plan >= len(PLANS) or phase >= len(PHASES) or dtype >= len(DTYPES) or dims > 3 or any(shape[dims:]):
        raise RefusedError("malformed", "a plan, phase, type or shape")
    if max(shape) >= 2**31:
        raise RefusedError("malformed", "a shape beyond all plans")
    numbers = DTYPES[dtype]
    shape = shape[:dims]
    if math.prod(shape) * numbers.itemsize != len(message) - START:
        raise RefusedError("malformed", f"{len(message) - START} bytes for {shape}")
    position = (step, slot)
    return Announced(sender, epoch, position, PLANS[plan], PHASES[phase], index, numbers, tuple(shape), checksum)


def _status(body: Bytes, sender: int, epoch: int) -> Status:
    try:
        tables = msgpack.unpackb(body, max_str_len=256, max_map_len=8, max_ext_len=0)
    except Exception as error:  # msgpack names a dozen kinds; all mean the same here
        raise RefusedError("malformed", type(error).__name__) from None
    if not isinstance(tables, dict):
        raise RefusedError("malformed", "a status that is not a map")
    facts, waiting = tables.get("facts"), tables.get("waiting")
    if not isinstance(facts, list) or not all(isinstance(fact, bytes) for fact in facts):
        raise RefusedError("malformed", "a status without its facts")
    return Status(sender, epoch, tuple(facts), None if waiting is None else _position(waiting))


def payload(announced: Announced, message: Bytes, sealed: bool = False) -> tuple[Tensor, float]:
    """The numbers that were announced, in the memory where they arrived if that can be, to be read only; and the
    magnitude of the largest."""
    numbers = memoryview(message)[START:]
    if not sealed and announced.checksum != zlib.crc32(numbers):
        raise RefusedError("checksum")
    if not len(numbers):
        return torch.empty(announced.shape, dtype=announced.dtype), 0.0
    rows = torch.frombuffer(bytearray(numbers) if numbers.readonly else numbers, dtype=announced.dtype)
    if rows.data_ptr() % announced.dtype.itemsize:  # ZeroMQ may hand a message over from within a larger buffer
        rows = torch.frombuffer(bytearray(numbers), dtype=announced.dtype)
    size = largest(rows)
    if not math.isfinite(size):
        raise RefusedError("not finite")
    return rows.view(announced.shape), size


def largest(rows: Tensor) -> float:
    """The magnitude of the largest number, not finite if one is not; 0 of bytes."""
    if not rows.numel() or not rows.dtype.is_floating_point:
        return 0.0
    numbers = rows.numpy(force=True)  # whose minimum and maximum take two thirds of the time of PyTorch's
    return max(-float(numbers.min()), float(numbers.max()))


def _position(value: Any) -> Position:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_count, value)):
        raise RefusedError("malformed", "a position")
    return value[0], value[1]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
