"""Identity of an agent in a run whose agents may leave and join: its profile, its keys, and those it admits.

In the agent's folder `admitted.txt` lists the public keys that may ask to join (`gossamer admit`). In the folder of the
run, `contact.json` has the address and the key that the agent was first known by, and `founders.json` the verify keys
of membership 0, where the agent's shard did not name them.
"""

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, read_text, write_atomically
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.keys import derive_agent_key, split_key
from gossamer.peers.network.z85 import KEY_LENGTH, is_key
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures, make_verifier
from gossamer.peers.protocol.terms import Entry, Profile, Term, unpack_profile
from gossamer.peers.protocol.wire import RefusedError
from gossamer.peers.shards.restriction import (
    EDGE_NUMBERS,
    add_declared_edges,
    find_verify_keys,
    list_declared_edges,
)
from gossamer.peers.shards.sites import SiteShard
from gossamer.runs.documents import read_json, to_json

ADMITTED_FILE, CONTACT_FILE, FOUNDERS_FILE = "admitted.txt", "contact.json", "founders.json"
MAX_ADMITTED_BYTES = 1 << 22
MAX_FOUNDERS_BYTES = 1 << 26


class Identity:
    """One agent's address and keys, and what it knows of the others'."""

    def __init__(self, folder: Path, run: Path, shard: SiteShard, secret: str | None, address: str) -> None:
        """`folder` is that of the agent, `run` that of its run; `address` is where neighbours reach it now."""
        self._folder, self._run, self._shard, self._secret = folder, run, shard, secret
        self.address, self.key = address, "" if secret is None else derive_agent_key(secret)
        self.num_founders = shard.settings.agents
        self._founders = self._read_founders()

    def has_moved(self, packed: bytes) -> bool:
        """Return whether the address, the key or the links are others than those of the stored profile or, without one,
        than the address and the key that the agent has announced first."""
        if packed:
            known = unpack_profile(packed)
            return (known.address, known.key, dict(known.links)) != (self.address, self.key, self._count_links())
        announced = self._read_announced()
        if announced is None:
            contact = self._shard.membership.contact
            same = self._secret is None or contact.key in (None, self.key[:KEY_LENGTH])
            announced = {"address": contact.address, "key": self.key if same else str(contact.key)}
            write_atomically(self._run / CONTACT_FILE, to_json(announced).encode(), PRIVATE)
        return announced != {"address": self.address, "key": self.key}

    def _read_announced(self) -> dict[str, str] | None:
        """The address and the key that the agent was first known by, once it has started."""
        path = self._run / CONTACT_FILE
        if not path.exists():
            return None
        found = read_json(path)
        if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("address", "key")):
            raise GossamerError(f"{path} is damaged; remove it if neither the agent's address nor its key has changed")
        return found

    def make_profile(self) -> bytes:
        """A new profile to join with."""
        return Profile(self.address, self.key, self._count_links(), secrets.randbits(62)).pack()

    def _count_links(self) -> dict[int, int]:
        """Number of edges to each neighbour."""
        data = self._shard.data
        return {z: int((data.owner[data.edges] == z).any(1).sum()) for z in self._shard.membership.neighbours}

    @property
    def terms(self) -> bytes:
        """A digest of what all agents must have alike: settings, classes, and the number of features."""
        features = self._shard.data.features.shape[-1]
        return hashlib.blake2b(f"{features} {self._shard.site.terms}".encode(), digest_size=16).digest()

    def declare(self, receiver: int) -> bytes:
        """The edges to a neighbour, to ask to join with."""
        edges = list_declared_edges(self._shard.data, self._shard.membership.agent, receiver)
        return np.ascontiguousarray(edges, dtype="<f8").tobytes()

    def check_join(self, entry: Entry, terms: bytes, edges: bytes) -> None:
        """Refuse an agent with which this one could not plan."""
        agent, profile = self._shard.membership.agent, entry.profile
        assert profile is not None
        if terms != self.terms:
            raise RefusedError("unplanned", f"agent {entry.agent} has other settings, classes or features")
        if len(edges) != 8 * EDGE_NUMBERS * profile.links.get(agent, 0):
            raise RefusedError("unplanned", f"agent {entry.agent} declares another number of edges than its profile")
        declared = np.frombuffer(edges, "<f8").reshape(-1, EDGE_NUMBERS).astype(np.float64)
        try:
            add_declared_edges(self._shard.data, agent, entry.agent, declared)
        except GossamerError as error:
            raise RefusedError("unplanned", str(error)) from None

    def signs_for(self, entry: Entry) -> bool:
        """Return whether this agent has the key of an entry with its id."""
        if self._secret is None:
            return True
        return self._find_verify_key(entry) in (None, self.key[KEY_LENGTH:])

    def is_same(self, entry: Entry, other: Entry) -> bool:
        """Return whether two entries with one id are of one agent: of one key. Without keys numbers alone count."""
        return self._secret is None or self._find_verify_key(entry) == self._find_verify_key(other)

    def _find_verify_key(self, entry: Entry) -> str | None:
        return entry.profile.key[KEY_LENGTH:] if entry.profile else self.find_founder_key(entry.agent)

    def sign(self, term: Term) -> Signatures:
        """The signatures of a membership, by numbers in it."""
        if self._secret is None:
            return UNSIGNED
        own = self.key[KEY_LENGTH:]
        keys = [
            own if key is None and agent == self._shard.membership.agent else key
            for agent, key in zip(term.ids, find_verify_keys(term, self.find_founder_key), strict=True)
        ]
        unknown = [agent for agent, key in zip(term.ids, keys, strict=True) if key is None]
        if unknown:
            raise RefusedError("signature", f"the key of agent {unknown[0]} is not known")
        return make_verifier(self._secret, [key for key in keys if key is not None])

    def find_founder_key(self, agent: int) -> str | None:
        """The verify key of an agent of membership 0."""
        return self._founders.get(agent)

    def list_founder_keys(self) -> tuple[bytes, ...]:
        """The verify keys of membership 0, for agents that do not know them; none where there are none, or where this
        agent does not know all of them itself."""
        keys = [self._founders[agent].encode() for agent in range(self.num_founders) if agent in self._founders]
        return () if self._secret is None or len(keys) < self.num_founders else tuple(keys)

    def learn_founders(self, keys: tuple[bytes, ...]) -> bool:
        """Take over the verify keys of membership 0 that the shard does not name, from a neighbour, and return whether
        they were not known; forget them if there are none."""
        path = self._run / FOUNDERS_FILE
        if not keys:
            path.unlink(missing_ok=True)
            self._founders = self._read_founders()
            return False
        texts = [key.decode("ascii", "replace") for key in keys]
        if len(texts) != self.num_founders or not all(is_key(text) for text in texts):
            raise RefusedError("malformed", "keys of another number of agents")
        differing = [k for k, text in enumerate(texts) if self._founders.get(k, text) != text]
        if differing:
            raise RefusedError("signature", f"another key of agent {differing[0]} than the one in the shard")
        if self._founders == dict(enumerate(texts)):
            return False
        self._founders = dict(enumerate(texts))
        write_atomically(path, to_json(texts).encode(), PRIVATE)
        return True

    def read_admitted(self) -> frozenset[str]:
        """The public keys that may ask to join."""
        return frozenset(read_admitted(self._folder))

    def admit(
        self, sender: int | str, entry: Entry, admitted: frozenset[str], known: Mapping[int, str | None]
    ) -> Contact:
        """The contact of an agent that asks to join; refuse one whose key has not been admitted. `known` are the CURVE
        keys of neighbours."""
        profile = entry.profile
        assert profile is not None
        if self._secret is None:
            return Contact(profile.address, None)
        curve = profile.key[:KEY_LENGTH]
        if not curve:
            raise RefusedError("malformed", "a profile without a key")
        authentic = (known.get(sender) if isinstance(sender, int) else sender) == curve
        if not (authentic and sender == entry.agent) and not (authentic and profile.key in admitted):
            raise RefusedError(
                "sender", f"the key {profile.key} of agent {entry.agent} is not admitted (gossamer admit)"
            )
        return Contact(profile.address, curve)

    def _read_founders(self) -> dict[int, str]:
        path, m = self._run / FOUNDERS_FILE, self.num_founders
        found = {k: key for k, key in enumerate(self._shard.membership.verify_keys) if key is not None}
        if path.exists():
            stored = read_json(path, MAX_FOUNDERS_BYTES)
            if not isinstance(stored, list) or len(stored) != m or not all(is_key(str(key)) for key in stored):
                raise GossamerError(
                    f"{path} is damaged; remove it and memberships.jsonl, and the agent asks its neighbours again"
                )
            found = dict(enumerate(map(str, stored))) | found
        agent = self._shard.membership.agent
        if self._secret is not None and agent < m and agent not in found:  # its own, as it was first announced
            announced = self._read_announced()
            found[agent] = (self.key if announced is None else announced["key"])[KEY_LENGTH:]
        return found


def read_admitted(folder: Path) -> list[str]:
    """The public keys in an agent's allow-list, one in a line; the rest of it, and lines that begin
    with #, are comments."""
    path = folder / ADMITTED_FILE
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(read_text(path, MAX_ADMITTED_BYTES).splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):  # which no key does: as the first of five characters it is too much
            split_key(words[0], f"{path}, line {number}")
            found.append(words[0])
    return found


def add_admitted(folder: Path, key: str) -> bool:
    """Add a public key to an agent's allow-list, and return whether it is new."""
    split_key(key, "KEY")
    known = read_admitted(folder)
    if key in known:
        return False
    path = folder / ADMITTED_FILE
    before = read_text(path, MAX_ADMITTED_BYTES) if path.exists() else "# public keys of agents that may ask to join\n"
    write_atomically(path, f"{before}{key}\n".encode(), PRIVATE)
    return True
