"""The wire format: a msgpack header and, for rows and weights, raw bytes. Nothing is believed before it is checked.

Two kinds of messages cross a link. A Frame carries the rows or weights of one exchange of Algorithm 1. A Status says
where an agent stands; it may be lost, doubled or late without harm. A message is one or two parts, header and payload.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import msgpack  # type: ignore[import-untyped]
import torch
from torch import Tensor

VERSION = 1
MAX_HEADER = 1 << 16
DTYPES = {"float32": torch.float32, "float64": torch.float64}
PLANS = ("full", "train")  # evaluation; training
PHASES = ("forward", "backward", "consensus")
Position = tuple[int, int]  # step, and which exchange of the step
Parts = list[bytes | memoryview]


class RefusedError(Exception):
    """A message that is not what the protocol allows; `reason` is one of REASONS."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


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
class Frame:
    """What one agent sends another in one exchange."""

    sender: int
    epoch: int
    position: Position
    plan: str
    phase: str
    index: int
    rows: Tensor


@dataclass(frozen=True)
class Status:
    """Where an agent stands in an epoch: who can restore which steps, who is done, and what it waits for."""

    sender: int
    epoch: int
    restorable: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # an agent's life, then its steps
    done: frozenset[int] = frozenset()
    waiting: Position | None = None


def encode(message: Frame | Status, run: str) -> Parts:
    """The parts of a message."""
    if isinstance(message, Status):
        body: dict[str, Any] = {
            "restorable": {agent: list(steps) for agent, steps in message.restorable.items()},
            "done": sorted(message.done),
            "waiting": message.waiting,
        }
        return [_header("status", message, run, body)]
    payload = memoryview(message.rows.detach().contiguous().numpy().reshape(-1).view("uint8").data)
    body = {
        "position": message.position,
        "plan": message.plan,
        "phase": message.phase,
        "index": message.index,
        "dtype": str(message.rows.dtype).removeprefix("torch."),
        "shape": list(message.rows.shape),
        "checksum": zlib.crc32(payload),
    }
    return [_header("frame", message, run, body), payload]


def _header(kind: str, message: Frame | Status, run: str, body: Mapping[str, Any]) -> bytes:
    common = {"version": VERSION, "kind": kind, "run": run, "sender": message.sender, "epoch": message.epoch}
    packed: bytes = msgpack.packb({**common, **body})
    return packed


def decode(parts: Sequence[bytes | memoryview], run: str, sender: int) -> Frame | Status:
    """A message of this run from the agent whose key the link belongs to. Nothing is copied before it is checked."""
    if not 1 <= len(parts) <= 2 or len(parts[0]) > MAX_HEADER:
        raise RefusedError("malformed", f"{len(parts)} parts")
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
        return _frame(header, parts[1], sender, epoch)
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


def _frame(header: Mapping[str, Any], payload: bytes | memoryview, sender: int, epoch: int) -> Frame:
    shape, dtype = header.get("shape"), DTYPES.get(str(header.get("dtype")))
    if dtype is None or not isinstance(shape, list) or len(shape) > 3 or not all(map(_is_count, shape)):
        raise RefusedError("malformed", "a shape or type of numbers")
    if any(size >= 2**31 for size in shape):
        raise RefusedError("malformed", "a shape beyond all plans")
    if header.get("plan") not in PLANS or header.get("phase") not in PHASES:
        raise RefusedError("malformed", "a plan or phase")
    if prod(shape) * dtype.itemsize != len(payload):
        raise RefusedError("malformed", f"{len(payload)} bytes for {shape}")
    if header.get("checksum") != zlib.crc32(payload):
        raise RefusedError("checksum")
    rows = (
        torch.frombuffer(bytearray(payload), dtype=dtype).view(shape)
        if len(payload)
        else torch.empty(shape, dtype=dtype)
    )
    if not torch.isfinite(rows).all():
        raise RefusedError("not finite")
    position = _position(header.get("position"))
    return Frame(sender, epoch, position, header["plan"], header["phase"], _count(header, "index"), rows)


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
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
