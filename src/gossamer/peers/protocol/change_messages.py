"""Messages of runs whose membership changes: votes, decisions, and requests to join; HEADER and a map (wire.py).

They may be lost, duplicated or late without harm. Senders of votes are numbers in the membership, others are ids.
"""

from dataclasses import dataclass

from gossamer.peers.protocol.paxos import VoteKind
from gossamer.peers.protocol.terms import MAX_PROFILE_BYTES
from gossamer.peers.protocol.wire import (
    BALLOTS,
    DECISION,
    HEADER,
    JOIN,
    WIRE_VERSION,
    Buffer,
    RefusedError,
    check_header,
    digest_run,
    pack_value,
    unpack_map,
)


@dataclass(frozen=True)
class Ballots:
    """Votes on what follows a membership (paxos.py)."""

    sender: int
    votes: tuple[bytes, ...]


@dataclass(frozen=True)
class Decision:
    """What follows a membership: the certificate of a decision, and, of the first, the verify keys of membership 0."""

    sender: int
    certificate: tuple[bytes, ...]
    founders: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class JoinRequest:
    """An agent that is no member asks to become one."""

    sender: int
    known: int  # decisions that it knows
    entry: bytes  # its profile in the next membership (terms.py)
    terms: bytes = b""  # a digest of what all agents must have alike
    edges: bytes = b""  # those that it declares to the receiver


ChangeMessage = Ballots | Decision | JoinRequest


def encode_change(message: ChangeMessage, run: str) -> bytes:
    """The bytes of a message of a run, or of one of its memberships."""
    kind = {Ballots: BALLOTS, Decision: DECISION, JoinRequest: JOIN}[type(message)]
    fields = {name: value for name, value in vars(message).items() if name != "sender"}
    return HEADER.pack(WIRE_VERSION, kind, message.sender, digest_run(run), 0) + pack_value(fields)


def decode_change(message: Buffer, run: str, sender: int, longest: int) -> ChangeMessage:
    """Decode votes, a decision or a request of this run from the agent whose key the link belongs to."""
    kind, _ = check_header(message, run, sender)
    if len(message) > longest:
        raise RefusedError("malformed", f"kind {kind} with {len(message)} bytes")
    tables = unpack_map(message[HEADER.size :])

    def take_list(name: str) -> tuple[bytes, ...]:
        found = tables.get(name)
        if not isinstance(found, list) or not all(isinstance(part, bytes) for part in found):
            raise RefusedError("malformed", f"a message without {name}")
        return tuple(found)

    if kind == BALLOTS:
        return Ballots(sender, take_list("votes"))
    if kind == DECISION:
        return Decision(sender, take_list("certificate"), take_list("founders"))
    known, given = tables.get("known"), [tables.get(name) for name in ("entry", "terms", "edges")]
    entry, terms, edges = (one if isinstance(one, bytes) else None for one in given)
    if entry is None or terms is None or edges is None or len(entry) > MAX_PROFILE_BYTES:
        raise RefusedError("malformed", "a request to join that cannot be read")
    if kind != JOIN or type(known) is not int or not 0 <= known < 1 << 32:
        raise RefusedError("malformed", "a request to join that cannot be read")
    return JoinRequest(sender, known, entry, terms, edges)


def name_joining(run: str) -> str:
    """The name that requests to join carry in place of a membership's."""
    return f"{run} joining"


def max_change_bytes(num_agents: int) -> int:
    """Bytes of the longest message with votes or a decision: of every agent a vote of each kind, with a value."""
    entry = 8 + 500 + 8 * num_agents
    return 1 << 12 | num_agents * len(VoteKind) * (128 + entry * num_agents)
