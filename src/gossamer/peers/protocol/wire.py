"""The wire format: a fixed header and the bytes behind it. Nothing is used before it is checked.

Two kinds of messages cross a link in every run. A Frame carries the rows or weights of one exchange of Algorithm 1:
HEADER, FRAME_HEADER and raw numbers. A Status carries the sender's progress, HEADER and a msgpack map; it may be lost,
duplicated or late without harm. So may the three kinds of runs whose membership changes, HEADER and a msgpack map, too:
Ballots are votes on what follows a membership, a Decision is what was decided, a JoinRequest comes from an agent that
is no member. Their senders are ids (terms.py), those of the others numbers in the membership. Calls, Echoes and Detours
are about links that are down (detours.py).

Reading has two stages. `decode` reads headers alone: of a frame it returns the FrameHeader, to be checked against the
plan. `read_payload` then reads the numbers, without copying them if possible.
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
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WIRE_VERSION = 6
HEADER = struct.Struct("<BBxxI16sQ")  # version, kind, sender, the run's digest, epoch
FRAME_HEADER = struct.Struct("<QIIBBBBI3I4x")  # step, slot, index, plan, phase, type, dimensions, checksum, shape
PAYLOAD_OFFSET = HEADER.size + FRAME_HEADER.size  # 72 bytes
STATUS, FRAME, BALLOTS, DECISION, JOIN, CALL, ECHO, DETOUR = range(8)
DTYPES = (torch.float32, torch.float64, torch.uint8, torch.int64)
# Evaluation; training; planning between sites; between two stages; the end of a run; inference after it
PLANS = ("full", "train", "site", "hand-over", "closing", "inference")
PHASES = ("forward", "backward", "consensus", "planning", "scores", "measures")
_ARRAY_TYPES = {dtype: np.dtype(str(dtype).removeprefix("torch.")) for dtype in DTYPES}
Position = tuple[int, int]  # of an exchange in a run: the step, and its number within the step
Buffer = bytes | memoryview

_DTYPE = {dtype: number for number, dtype in enumerate(DTYPES)}
_PLAN = {plan: number for number, plan in enumerate(PLANS)}
_PHASE = {phase: number for number, phase in enumerate(PHASES)}


class RefusedError(Exception):
    """A message that is not what the protocol allows; `reason` is one of REASONS."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


REASONS = (
    "malformed",  # not a header of ours, or not the bytes that it describes
    "version",  # another version of this format
    "run",  # another run's
    "sender",  # names an agent that its key does not belong to
    "checksum",
    "unplanned",  # a shape, type, phase or moment that the plan does not have
    "old",  # of an epoch or a step that is over
    "early",  # of an epoch or a step that has not begun here; it is requested later
    "duplicate",
    "not finite",
    "too large",  # a number that no training that works has (magnitudes.py)
    "signature",  # a statement that its subject has not signed, or of another epoch (statements.py)
    "contradiction",  # two statements about an agent in one epoch, both signed
    "too often",  # beyond a rate limit (resending.py)
)


@dataclass(slots=True)
class _FrameKey:
    """The sender of a frame, and the exchange that it belongs to."""

    sender: int
    epoch: int
    position: Position
    plan: str
    phase: str
    index: int


@dataclass(slots=True)
class Frame(_FrameKey):
    """The message of one agent to another in one exchange."""

    rows: Tensor


@dataclass(slots=True)
class FrameHeader(_FrameKey):
    """The header of a frame whose numbers have not been read."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    checksum: int


@dataclass(frozen=True)
class Status:
    """Progress of an agent in an epoch: the statements that it knows (statements.py), and the exchange it waits in."""

    sender: int
    epoch: int
    statements: tuple[bytes, ...] = ()
    waiting: Position | None = None


@lru_cache(maxsize=64)
def digest_run(run: str) -> bytes:
    """The name of a run in headers and in signed statements."""
    return hashlib.blake2b(run.encode(), digest_size=16).digest()


def encode(message: Frame | Status, run: str, encrypted: bool = False) -> bytes:
    """The bytes of a message. An encrypted link authenticates every byte: there a frame has no checksum."""
    if isinstance(message, Status):
        packed = pack_value({"facts": message.statements, "waiting": message.waiting})
        return HEADER.pack(WIRE_VERSION, STATUS, message.sender, digest_run(run), message.epoch) + packed
    numbers = message.rows.contiguous().numpy()
    shape = numbers.shape
    return b"".join(
        (
            HEADER.pack(WIRE_VERSION, FRAME, message.sender, digest_run(run), message.epoch),
            FRAME_HEADER.pack(
                *message.position,
                message.index,
                _PLAN[message.plan],
                _PHASE[message.phase],
                _DTYPE[message.rows.dtype],
                len(shape),
                0 if encrypted else zlib.crc32(numbers.data),
                *shape,
                *(0,) * (3 - len(shape)),
            ),
            numbers.data,
        )
    )


def is_of_run(message: Buffer, run: str) -> bool:
    """Return whether a message names a run in its header."""
    return find_run_digest(message) == digest_run(run)


def find_run_digest(message: Buffer) -> bytes | None:
    """The run that a message names in its header, as a digest; None if it has no header."""
    return HEADER.unpack_from(message)[3] if len(message) >= HEADER.size else None


def find_kind(message: Buffer) -> int | None:
    """The kind in the header of a message, if it has one."""
    return HEADER.unpack_from(message)[1] if len(message) >= HEADER.size else None


def find_sender(message: Buffer) -> int:
    """The sender that a message claims in its header."""
    if len(message) < HEADER.size:
        raise RefusedError("malformed", f"{len(message)} bytes")
    return int(HEADER.unpack_from(message)[2])


def max_status_length(num_agents: int, statement_lengths: Iterable[int]) -> int:
    """Bytes of the longest status of a run, with statements of these lengths about every agent."""
    prefix = 5  # bytes before a msgpack string, at most
    return HEADER.size + 64 + num_agents * sum(prefix + length for length in statement_lengths)


def decode(message: Buffer, run: str, sender: int, longest: int = 1 << 16) -> FrameHeader | Status:
    """Decode a status, or the header of a frame, of this run from the agent whose key the link belongs to. A payload
    is measured and not read; no status is longer than `longest`."""
    kind, epoch = check_header(message, run, sender)
    size = len(message)
    if kind == FRAME and size >= PAYLOAD_OFFSET:
        return _read_frame_header(message, sender, epoch)
    if kind == STATUS and size <= longest:
        return _read_status(message[HEADER.size :], sender, epoch)
    raise RefusedError("malformed", f"kind {kind} with {size} bytes")


def check_header(message: Buffer, run: str, sender: int) -> tuple[int, int]:
    """The kind and the epoch in the header of a message of this run from this agent."""
    if len(message) < HEADER.size:
        raise RefusedError("malformed", f"{len(message)} bytes")
    version, kind, claimed, digest, epoch = HEADER.unpack_from(message)
    if version != WIRE_VERSION:
        raise RefusedError("version", str(version))
    if digest != digest_run(run):
        raise RefusedError("run", digest.hex())
    if claimed != sender:
        raise RefusedError("sender", str(claimed))
    return kind, epoch


def _read_frame_header(message: Buffer, sender: int, epoch: int) -> FrameHeader:
    step, slot, index, plan, phase, dtype, dims, checksum, *shape = FRAME_HEADER.unpack_from(message, HEADER.size)
    if plan >= len(PLANS) or phase >= len(PHASES) or dtype >= len(DTYPES) or dims > 3 or any(shape[dims:]):
        raise RefusedError("malformed", "a plan, phase, type or shape")
    if max(shape) >= 2**31:
        raise RefusedError("malformed", "a shape beyond all plans")
    numbers = DTYPES[dtype]
    shape = shape[:dims]
    if math.prod(shape) * numbers.itemsize != len(message) - PAYLOAD_OFFSET:
        raise RefusedError("malformed", f"{len(message) - PAYLOAD_OFFSET} bytes for {shape}")
    position = (step, slot)
    return FrameHeader(sender, epoch, position, PLANS[plan], PHASES[phase], index, numbers, tuple(shape), checksum)


def pack_value(value: object) -> bytes:
    """A value of lists, numbers and texts as msgpack."""
    packed: bytes = msgpack.packb(value)
    return packed


def unpack_value(body: Buffer, most_text: int = 256) -> Any:
    """The value in a body of msgpack, with texts of so many bytes at most."""
    try:
        return msgpack.unpackb(body, max_str_len=most_text, max_map_len=8, max_ext_len=0)
    except Exception as error:  # msgpack names a dozen kinds; all mean the same here
        raise RefusedError("malformed", type(error).__name__) from None


def unpack_map(body: Buffer) -> dict[Any, Any]:
    tables = unpack_value(body)
    if not isinstance(tables, dict):
        raise RefusedError("malformed", "a body that is not a map")
    return tables


def _read_status(body: Buffer, sender: int, epoch: int) -> Status:
    tables = unpack_map(body)
    statements, waiting = tables.get("facts"), tables.get("waiting")
    if not isinstance(statements, list) or not all(isinstance(one, bytes) for one in statements):
        raise RefusedError("malformed", "a status without its statements")
    return Status(sender, epoch, tuple(statements), None if waiting is None else _read_position(waiting))


def read_payload(header: FrameHeader, message: Buffer, encrypted: bool = False) -> tuple[Tensor, float]:
    """The numbers of a frame, read-only and if possible in the memory where they arrived, and the largest magnitude."""
    payload = memoryview(message)[PAYLOAD_OFFSET:]
    if not encrypted and header.checksum != zlib.crc32(payload):
        raise RefusedError("checksum")
    numbers = np.frombuffer(payload, _ARRAY_TYPES[header.dtype])
    if not (numbers.flags.aligned and numbers.flags.writeable):
        numbers = numbers.copy()  # ZeroMQ may hand a message over from within a larger buffer
    size = _max_magnitude(numbers)
    if not math.isfinite(size):
        raise RefusedError("not finite")
    return torch.from_numpy(numbers.reshape(header.shape)), size


def max_magnitude(rows: Tensor) -> float:
    """The largest magnitude, not finite if one number is not; 0 of bytes and of masked numbers."""
    return _max_magnitude(rows.numpy())


def _max_magnitude(numbers: NDArray[Any]) -> float:
    if not numbers.size or numbers.dtype.kind != "f":
        return 0.0
    return float(np.maximum.reduce(np.abs(numbers), axis=None))  # NumPy's small operations take half of PyTorch's time


def _read_position(value: Any) -> Position:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_count, value)):
        raise RefusedError("malformed", "a position")
    return value[0], value[1]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
