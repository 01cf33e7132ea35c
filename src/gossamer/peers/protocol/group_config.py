"""Parameters of one agent in a run whose membership changes, and the interface of its persistent state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gossamer.peers.protocol.change_messages import JoinRequest, decode_change, encode_change, name_joining
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.paxos import VoteStore
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.terms import Entry, Term
from gossamer.peers.protocol.wire import Buffer, RefusedError, find_sender


class GroupStore(Protocol):
    """Persistent state of an agent across memberships."""

    def certificates(self) -> Sequence[tuple[bytes, ...]]:
        """Return the certificates of all decisions, from that of membership 0 on."""

    def add_certificate(self, term: Term, certificate: Sequence[bytes], following: Sequence[Entry] | None) -> None:
        """Store the decision of a membership: what follows it, or None if the run has finished."""

    def votes(self, number: int) -> VoteStore: ...

    def profile(self) -> bytes:
        """Return the profile that the agent joins or has joined with; empty: that of membership 0."""

    def set_profile(self, packed: bytes) -> None: ...

    def has_entered(self, number: int) -> bool:
        """Return whether the agent has taken part in a membership: what it voted there is on this disk."""


@dataclass(frozen=True)
class GroupConfig:
    """Parameters of one agent across memberships."""

    run: str
    agent: int  # its id
    founders: tuple[int, ...]  # ids of the members of membership 0, ascending
    neighbours: tuple[int, ...]  # ids of the agents that its shard names as neighbours
    evict_after: float  # seconds; 0: nobody is removed for being silent
    sign: Callable[[Term], Signatures]  # makes the signatures of a membership, by numbers in it
    make_profile: Callable[[], bytes]  # a new one of this agent, to join with
    max_message_bytes: int  # of votes and decisions
    moved: bool = False  # its address or key is another than the one that it joined with
    signs_for: Callable[[Entry], bool] = lambda entry: True  # whether it has the key of an entry with its id
    # Refuses who may not join, or has other settings (a digest) or edges than those of this agent
    admit: Callable[[int | str, Entry, bytes, bytes], None] = lambda sender, entry, terms, edges: None
    founder_keys: Callable[[], tuple[bytes, ...]] = lambda: ()  # as `learn_founders` takes them; all or none
    # Returns whether these were not known yet; forgets them if there are none
    learn_founders: Callable[[tuple[bytes, ...]], bool] = lambda keys: False
    # Whether two entries with one id are of one agent, as far as their keys show
    is_same: Callable[[Entry, Entry], bool] = lambda entry, other: True
    terms: bytes = b""  # a digest of what all agents must have alike
    declare: Callable[[int], bytes] = lambda receiver: b""  # the edges to a neighbour, to ask to join with

    def ask(self, receiver: int, entry: Entry, known: int) -> bytes:
        """A request to join with an entry, of an agent that knows so many decisions."""
        request = JoinRequest(self.agent, known, entry.packed, self.terms, self.declare(receiver))
        return encode_change(request, name_joining(self.run))

    def read_request(self, sender: int | str, message: Buffer, members: Sequence[int]) -> tuple[Entry, JoinRequest]:
        """A request to join of a neighbour or of a key, and the entry that it asks for; who is no member may ask with
        another id than before."""
        claimed = sender if isinstance(sender, int) and sender in members else find_sender(message)
        request = decode_change(message, name_joining(self.run), claimed, self.max_message_bytes)
        assert isinstance(request, JoinRequest)
        entry = Entry(claimed, request.entry)
        if entry.profile is None or claimed == self.agent:  # `profile` refuses what cannot be read
            raise RefusedError("malformed", "a request to join without a profile, or of this agent itself")
        if self.agent not in entry.profile.links:
            raise RefusedError("unplanned", f"agent {claimed} names no link to this agent")
        return entry, request


def refuse_taken(agent: int) -> RefusedError:
    """What an agent is refused with that has the number of a member and another key."""
    return RefusedError("sender", f"agent {agent} is a member, with another key; take another number")


def refuse_stranger(number: int, term: Term, last: Term) -> RefusedError:
    """What a message is refused with that claims to be of a number in a membership, and is of nobody in the last."""
    agent = term.ids[number] if number < len(term.ids) else None
    return refuse_taken(agent) if agent in last.ids else RefusedError("sender", "no member, and no request to join")


MakeMember = Callable[[Sequence[Term], int, Callable[[int, bytes], None], float], Member]
