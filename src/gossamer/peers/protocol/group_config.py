"""Parameters of one agent in a run whose membership changes, and the interface of its persistent state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gossamer.peers.protocol.change_messages import JoinRequest, encode_change, name_joining
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.paxos import VoteStore
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.terms import Entry, Term


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
    founder_keys: tuple[bytes, ...] = ()  # as `learn_founders` takes them
    learn_founders: Callable[[tuple[bytes, ...]], None] = lambda keys: None  # forgets them if there are none
    terms: bytes = b""  # a digest of what all agents must have alike
    declare: Callable[[int], bytes] = lambda receiver: b""  # the edges to a neighbour, to ask to join with

    def ask(self, receiver: int, entry: Entry, known: int) -> bytes:
        """A request to join with an entry, of an agent that knows so many decisions."""
        request = JoinRequest(self.agent, known, entry.packed, self.terms, self.declare(receiver))
        return encode_change(request, name_joining(self.run))


MakeMember = Callable[[Sequence[Term], int, Callable[[int, bytes], None], float], Member]
