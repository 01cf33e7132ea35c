"""The wire format: a msgpack header and, for rows and weights, raw bytes. Nothing is believed before it is checked.

Two kinds of messages cross a link. A Frame carries the rows or weights of one exchange of Algorithm 1. A Status says
where an agent stands; it may be lost, doubled or late without harm. A message is one or two parts, header and payload.

Reading has two stages. `decode` reads the header alone: what it gives of a frame is only Announced, to be held against
the plan. `payload` then looks at the numbers, and leaves them where they arrived.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack  # type: ignore[import-untyped]
import torch
from torch import Tensor

VERSION = 1
DTYPES = {"float32": torch.float32, "float64": torch.float64, "uint8": torch.uint8}
PLANS = ("full", "train", "site")  # evaluation; training; what sites plan before it
PHASES = ("forward", "backward", "consensus", "planning")
Position = tuple[int, int]  # step, and which exchange of the step
Parts = list[bytes | memoryview]


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


@dataclass(frozen=True)
class _Sent:
    """Whose a frame is, and to which exchange it belongs."""

    sender: int
    epoch: int
    position: Position
    plan: str
    phase: str
    index: int


@dataclass(frozen=True)
class Frame(_Sent):
    """What one agent sends another in one exchange."""

    rows: Tensor


@dataclass(frozen=True)
class Announced(_Sent):
    """What a frame's header says of it; its numbers have not been looked at."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    checksum: Any


@dataclass(frozen=True)
class Status:
    """Where an agent stands in an epoch: who can restore which steps, who is done, and what it waits for."""

    sender: int
    epoch: int
    restorable: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # an agent's life, then its steps
    done: frozenset[int] = frozenset()
    waiting: Position | None = None


def encode(message: Frame | Status, run: str, sealed: bool = False) -> Parts:
    """The parts of a message. A link that is `sealed` guards every byte itself: there a frame has no checksum."""
    if isinstance(message, Status):
        body: dict[str, Any] = {
            "restorable": {agent: list(steps) for agent, steps in message.restorable.items()},
            "done": sorted(message.done),
            "waiting": message.waiting,
        }
        return [_header("status", message, run, body)]
    numbers = memoryview(message.rows.detach().contiguous().numpy().reshape(-1).view("uint8").data)
    body = {
        "position": message.position,
        "plan": message.plan,
        "phase": message.phase,
        "index": message.index,
        "dtype": str(message.rows.dtype).removeprefix("torch."),
        "shape": list(message.rows.shape),
        "checksum": None if sealed else zlib.crc32(numbers),
    }
    return [_header("frame", message, run, body), numbers]


def _header(kind: str, message: Frame | Status, run: str, body: Mapping[str, Any]) -> bytes:
    common = {"version": VERSION, "kind": kind, "run": run, "sender": message.sender, "epoch": message.epoch}
    packed: bytes = msgpack.packb({**common, **body})
    return packed


def largest_header(num_agents: int, keep: int) -> int:
    """Bytes that no header of such a run exceeds: a status that knows of all agents, each with all its checkpoints."""
    number, length = 9, 5  # of a msgpack integer and of a list's beginning, at most
    of_agent = number + length + number * (1 + keep + 1)  # its name, its life and its steps, step 0 among them
    return 1024 + num_agents * (of_agent + number)


def decode(parts: Sequence[bytes | memoryview], run: str, sender: int, longest: int = 1 << 16) -> Announced | Status:
    """A status, or what a frame announces, of this run from the agent whose key the link belongs to. A payload is
    measured and not read; no header is longer than `longest`."""
    if not 1 <= len(parts) <= 2 or len(parts[0]) > longest:
        raise RefusedError("malformed", f"{len(parts)} parts, {len(parts[0]) if parts else 0} bytes of header")
    header = _unpacked(parts[0])
    if header.get("version") != VERSION:
        raise RefusedError("version", repr(header.get("version"))[:40])
    if header.get("run") != run:
        raise RefusedError("run", repr(header.get("run"))[:80])
    if header.get("sender") != sender or isinstance(header["sender"], bool):
        raise RefusedError("sender", repr(header.get("sender"))[:40])
    epoch = _count(header, "epoch")
    if header.get("kind") == "status" and len(parts) == 1:
        return _status(header, sender, epoch)
    if header.get("kind") == "frame" and len(parts) == 2:
        return _announced(header, len(parts[1]), sender, epoch)
    raise RefusedError("malformed", f"kind {header.get('kind')!r:.40} with {len(parts)} parts")


def _unpacked(part: bytes | memoryview) -> dict[str, Any]:
    try:
        header = msgpack.unpackb(part, strict_map_key=False, max_str_len=256, max_bin_len=0, max_ext_len=0)
    except Exception as error:  # msgpack names a dozen kinds; all mean the same here
        raise RefusedError("malformed", type(error).__name__) from None
    if not isinstance(header, dict):
        raise RefusedError("malformed", "the header is not a map")
    return header


def _status(header: Mapping[str, Any], sender: int, epoch: int) -> Status:
    restorable, done, waiting = (header.get(name) for name in ("restorable", "done", "waiting"))
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


def _announced(header: Mapping[str, Any], length: int, sender: int, epoch: int) -> Announced:
    shape, dtype = header.get("shape"), DTYPES.get(str(header.get("dtype")))
    if dtype is None or not isinstance(shape, list) or len(shape) > 3 or not all(map(_is_count, shape)):
        raise RefusedError("malformed", "a shape or type of numbers")
    if any(size >= 2**31 for size in shape):
        raise RefusedError("malformed", "a shape beyond all plans")
    if header.get("plan") not in PLANS or header.get("phase") not in PHASES:
        raise RefusedError("malformed", "a plan or phase")
    if math.prod(shape) * dtype.itemsize != length:
        raise RefusedError("malformed", f"{length} bytes for {shape}")
    return Announced(
        sender,
        epoch,
        _position(header.get("position")),
        header["plan"],
        header["phase"],
        _count(header, "index"),
        dtype,
        tuple(shape),
        header.get("checksum"),
    )


def payload(announced: Announced, part: bytes | memoryview, sealed: bool = False) -> Tensor:
    """The numbers that were announced, in the memory where they arrived if that can be; to be read only."""
    if not sealed and announced.checksum != zlib.crc32(part):
        raise RefusedError("checksum")
    if not len(part):
        return torch.empty(announced.shape, dtype=announced.dtype)
    raw = torch.frombuffer(bytearray(part) if memoryview(part).readonly else part, dtype=torch.uint8)
    if raw.data_ptr() % announced.dtype.itemsize:
        raw = raw.clone()  # ZeroMQ may hand over a small message from within a larger buffer
    rows = raw.view(announced.dtype).view(announced.shape)
    if not is_finite(rows):
        raise RefusedError("not finite")
    return rows


def is_finite(rows: Tensor) -> bool:
    """Whether all numbers are finite. A finite sum says so in one pass; if it is not, it may have overflowed."""
    return math.isfinite(rows.sum().item()) or bool(torch.isfinite(rows).all())


def _position(value: Any) -> Position:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_count, value)):
        raise RefusedError("malformed", "a position")
    return value[0], value[1]


def _count(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not _is_count(value):
        raise RefusedError("malformed", name)
    return int(value)  # type: ignore[arg-type]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
