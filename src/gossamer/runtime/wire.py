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
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgpack  # type: ignore[import-untyped]
import torch
from torch import Tensor

VERSION = 2
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
    """Where an agent stands in an epoch: who can restore which steps, who is done, and what it waits for."""

    sender: int
    epoch: int
    restorable: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # an agent's life, then its steps
    done: frozenset[int] = frozenset()
    waiting: Position | None = None


@lru_cache(maxsize=8)
def _digest(run: str) -> bytes:
    """What a header has of a run's name."""
    return hashlib.blake2b(run.encode(), digest_size=16).digest()


def encode(message: Frame | Status, run: str, sealed: bool = False) -> bytes:
    """The bytes of a message. A link that is `sealed` guards every byte itself: there a frame has no checksum."""
    if isinstance(message, Status):
        body = {
            "restorable": {agent: list(steps) for agent, steps in message.restorable.items()},
            "done": sorted(message.done),
            "waiting": message.waiting,
        }
        packed: bytes = msgpack.packb(body)
        return HEAD.pack(VERSION, STATUS, message.sender, _digest(run), message.epoch) + packed
    shape, numbers = message.rows.shape, message.rows.contiguous().numpy(force=True).data
    return b"".join(
        (
            HEAD.pack(VERSION, FRAME, message.sender, _digest(run), message.epoch),
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


def largest_status(num_agents: int, keep: int) -> int:
    """Bytes that no status of such a run exceeds: one that knows of all agents, each with all its checkpoints."""
    number, length = 9, 5  # of a msgpack integer and of a list's beginning, at most
    of_agent = number + length + number * (1 + keep + 1)  # its name, its life and its steps, step 0 among them
    return HEAD.size + 64 + num_agents * (of_agent + number)


def decode(message: Bytes, run: str, sender: int, longest: int = 1 << 16) -> Announced | Status:
    """A status, or what a frame announces, of this run from the agent whose key the link belongs to. A payload is
    measured and not read; no status is longer than `longest`."""
    size = len(message)
    if size < HEAD.size:
        raise RefusedError("malformed", f"{size} bytes")
    version, kind, named, digest, epoch = HEAD.unpack_from(message)
    if version != VERSION:
        raise RefusedError("version", str(version))
    if digest != _digest(run):
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
        tables = msgpack.unpackb(body, strict_map_key=False, max_str_len=256, max_bin_len=0, max_ext_len=0)
    except Exception as error:  # msgpack names a dozen kinds; all mean the same here
        raise RefusedError("malformed", type(error).__name__) from None
    if not isinstance(tables, dict):
        raise RefusedError("malformed", "a status that is not a map")
    restorable, done, waiting = (tables.get(name) for name in ("restorable", "done", "waiting"))
    if not isinstance(restorable, dict) or not isinstance(done, list):
        raise RefusedError("malformed", "a status without its tables")
    for agent, steps in restorable.items():
        if not _is_count(agent) or not isinstance(steps, list) or not steps or not all(map(_is_count, steps)):
            raise RefusedError("malformed", "a table of steps")
    if not all(map(_is_count, done)):
        raise RefusedError("malformed", "a list of agents")
    return Status(
        sender,
        epoch,
        {agent: tuple(steps) for agent, steps in restorable.items()},
        frozenset(done),
        None if waiting is None else _position(waiting),
    )


def payload(announced: Announced, message: Bytes, sealed: bool = False) -> Tensor:
    """The numbers that were announced, in the memory where they arrived if that can be; to be read only."""
    numbers = memoryview(message)[START:]
    if not sealed and announced.checksum != zlib.crc32(numbers):
        raise RefusedError("checksum")
    if not len(numbers):
        return torch.empty(announced.shape, dtype=announced.dtype)
    rows = torch.frombuffer(bytearray(numbers) if numbers.readonly else numbers, dtype=announced.dtype)
    if rows.data_ptr() % announced.dtype.itemsize:  # ZeroMQ may hand a message over from within a larger buffer
        rows = torch.frombuffer(bytearray(numbers), dtype=announced.dtype)
    if not is_finite(rows):
        raise RefusedError("not finite")
    return rows.view(announced.shape)


def is_finite(rows: Tensor) -> bool:
    """Whether all numbers are finite. A finite sum says so in one pass; if it is not, it may have overflowed."""
    return math.isfinite(rows.sum().item()) or bool(torch.isfinite(rows).all())


def _position(value: Any) -> Position:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_count, value)):
        raise RefusedError("malformed", "a position")
    return value[0], value[1]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
