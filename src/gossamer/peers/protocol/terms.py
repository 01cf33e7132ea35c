"""Memberships of a run in their order (terms), and the decision that ends each: the next members, or the run's end.

An agent has an id that stays its own; in a term its number, by which member.py and the arithmetic know it, is its place
in the order of ids. An entry is an id with the profile that the agent joined with: its address, its public key, and the
number of data edges to each agent that it has a link to. The agents of membership 0 have empty profiles: their shards
have been told all of it.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import check_address
from gossamer.peers.network.z85 import KEY_LENGTH, is_key
from gossamer.peers.protocol.wire import RefusedError, pack_value, unpack_value

FINISHED = b"F"  # the decision that ends a run
_MEMBERS = b"M"
_ENTRY = struct.Struct("<IH")  # id, and bytes of the profile
_ID = struct.Struct("<I")
MAX_ADDRESS, MAX_KEY = 300, 80  # characters
MAX_LINKS = 1 << 12  # of a profile, so that it fits into an entry
MAX_PROFILE_BYTES = (1 << 16) - 1


@dataclass(frozen=True)
class Profile:
    """What an agent that joins lets all members know."""

    address: str
    key: str  # its public key of 80 characters; empty on a network that is trusted
    links: Mapping[int, int]  # data edges to each agent that it has a link to
    nonce: int = 0  # different for every time that it joins

    def pack(self) -> bytes:
        packed = pack_value([self.address, self.key, sorted(self.links.items()), self.nonce])
        if len(packed) > MAX_PROFILE_BYTES:
            raise RefusedError("malformed", "a profile with too many links")
        return packed


@lru_cache(maxsize=1024)
def unpack_profile(packed: bytes) -> Profile:
    """The profile of an agent; refuse what `Profile.pack` does not make."""
    try:
        address, key, links, nonce = unpack_value(packed, MAX_ADDRESS)
        found = Profile(address, key, dict(links), nonce)
    except (TypeError, ValueError):
        raise RefusedError("malformed", "a profile that cannot be read") from None
    if not _can_be_reached(address) or not _can_be_key(key):
        raise RefusedError("malformed", "a profile with an address or a key that cannot be")
    numbers = [nonce, *found.links, *found.links.values()]
    sizes = all(type(number) is int and 0 <= number < 1 << 64 for number in numbers)
    if not sizes or any(z >= 1 << 32 for z in found.links) or len(found.links) > MAX_LINKS:
        raise RefusedError("malformed", "a profile that no agent has")
    if found.pack() != packed:
        raise RefusedError("malformed", "a profile in another form")
    return found


def _can_be_reached(address: object) -> bool:
    try:
        check_address(str(address), "")
    except GossamerError:
        return False
    return isinstance(address, str) and len(address) <= MAX_ADDRESS


def _can_be_key(key: object) -> bool:
    """Return whether this is the public key of an agent, or empty, as on a network that is trusted."""
    whole = isinstance(key, str) and len(key) == MAX_KEY
    return key == "" or (whole and is_key(str(key)[:KEY_LENGTH]) and is_key(str(key)[KEY_LENGTH:]))


@dataclass(frozen=True, order=True)
class Entry:
    """An agent in a membership."""

    agent: int  # its id
    packed: bytes = b""  # its profile; empty: that of membership 0

    @property
    def profile(self) -> Profile | None:
        return unpack_profile(self.packed) if self.packed else None


@dataclass(frozen=True)
class Term:
    """One membership: its number in the run's history, its members by id, and the name that its messages carry."""

    number: int
    entries: tuple[Entry, ...]
    name: str
    ids: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(entry.agent for entry in self.entries))

    def find(self, agent: int) -> Entry | None:
        """The entry of an agent, if it is a member."""
        return next((entry for entry in self.entries if entry.agent == agent), None)

    @property
    def joined(self) -> frozenset[int]:
        """Numbers of the members that have joined after membership 0."""
        return frozenset(number for number, entry in enumerate(self.entries) if entry.packed)

    def find_neighbours(self, agent: int, founding: Iterable[int]) -> tuple[int, ...]:
        """Ids of an agent's neighbours: those that one of both names in its profile or, of two agents of membership 0,
        those that the agent's shard names (`founding`)."""
        own, known = self.find(agent), set(founding)
        found = []
        for other in self.entries:
            if own is None or other.agent == agent:
                continue
            profiles = [(one.profile, z) for one, z in ((own, other.agent), (other, agent)) if one.packed]
            if any(z in profile.links for profile, z in profiles if profile) or (not profiles and other.agent in known):
                found.append(other.agent)
        return tuple(found)


def make_entries(ids: Iterable[int]) -> tuple[Entry, ...]:
    """Entries of agents of membership 0."""
    return tuple(Entry(agent) for agent in sorted(ids))


def name_term(run: str, number: int, entries: Sequence[Entry]) -> Term:
    """A membership of a run. The first has the run's own name: its messages are those of a run that cannot change."""
    if number == 0:
        return Term(number, tuple(entries), run)
    digest = hashlib.blake2b(f"{run} {number} ".encode() + pack_members(entries), digest_size=16)
    return Term(number, tuple(entries), f"membership-{number}-{digest.hexdigest()}")


def pack_members(entries: Iterable[Entry]) -> bytes:
    """The decision that these are the next members."""
    return _MEMBERS + pack_entries(entries)


def unpack_members(value: bytes) -> tuple[Entry, ...] | None:
    """The members that a decision names; None: the run has finished."""
    if value == FINISHED:
        return None
    if value[:1] != _MEMBERS:
        raise RefusedError("malformed", "a decision of no kind")
    return unpack_entries(value[1:])


def pack_entries(entries: Iterable[Entry]) -> bytes:
    return b"".join(_ENTRY.pack(one.agent, len(one.packed)) + one.packed for one in sorted(entries))


def unpack_entries(content: bytes) -> tuple[Entry, ...]:
    """Entries by ascending ids, with profiles that can be read."""
    found, place = list[Entry](), 0
    while place < len(content):
        if place + _ENTRY.size > len(content):
            raise RefusedError("malformed", "an entry that is cut off")
        agent, size = _ENTRY.unpack_from(content, place)
        place += _ENTRY.size + size
        if place > len(content):
            raise RefusedError("malformed", "an entry that is cut off")
        entry = Entry(agent, bytes(content[place - size : place]))
        entry.profile  # noqa: B018 - refuses what cannot be read
        found.append(entry)
    if any(one.agent >= other.agent for one, other in pairwise(found)):
        raise RefusedError("malformed", "entries without order")
    return tuple(found)


def check_keys(entries: Iterable[Entry], encrypted: bool) -> None:
    """Refuse profiles without a key where links are encrypted, and with one where they are not."""
    if any(entry.profile is not None and bool(entry.profile.key) != encrypted for entry in entries):
        raise RefusedError("malformed", "a profile with a key" if not encrypted else "a profile without a key")


def check_decision(value: bytes, term: Term, encrypted: bool = False) -> None:
    """Refuse what cannot follow a membership: no members, or new ones without a profile."""
    members = unpack_members(value)
    if members is None:
        return
    known = set(term.entries)
    if not members or any(entry not in known and not entry.packed for entry in members):
        raise RefusedError("malformed", "a decision that cannot be")
    check_keys(members, encrypted)


def pack_ids(ids: Iterable[int]) -> bytes:
    return b"".join(map(_ID.pack, sorted(ids)))


def unpack_ids(content: bytes) -> tuple[int, ...]:
    if len(content) % _ID.size:
        raise RefusedError("malformed", "ids that are cut off")
    return tuple(number for (number,) in _ID.iter_unpack(content))
