"""Who an agent is to the others in a run whose agents may leave and join: its profile, its keys, and those it admits.

In the agent's folder `admitted.txt` lists the public keys that may ask to join (`gossamer admit`). In the folder of the
run, `contact.json` has the address and the key that the agent has announced last, and `founders.json` the verify keys
of membership 0, where the agent's shard did not name them.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, read_text, write_atomically
from gossamer.peers.network.addresses import Contact, check_address
from gossamer.peers.network.keys import derive_agent_key, split_key
from gossamer.peers.network.z85 import KEY_LENGTH, is_key
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures, make_verifier
from gossamer.peers.protocol.terms import Entry, Profile, Term
from gossamer.peers.protocol.wire import RefusedError
from gossamer.peers.shards.restriction import find_verify_keys
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

    @property
    def moved(self) -> bool:
        """Return whether the address or the key is another than the one announced last; the first is noted."""
        path, own = self._run / CONTACT_FILE, {"address": self.address, "key": self.key}
        if not path.exists():
            known = self._shard.membership.contact
            founding = self._shard.membership.agent < self.num_founders
            announced = {"address": known.address, "key": self.key if known.key is None else known.key}
            if founding and announced["key"] == self.key[:KEY_LENGTH]:
                announced["key"] = self.key
            self._announce(announced if founding else own)
        return bool(read_json(path) != own)

    def make_profile(self) -> bytes:
        """A new profile to join with."""
        data, agent = self._shard.data, self._shard.membership.agent
        links = {z: int((data.owner[data.edges] == z).any(1).sum()) for z in self._shard.membership.neighbours}
        self._announce({"address": self.address, "key": self.key})
        return Profile(
            self.address, self.key, {z: n for z, n in links.items() if z != agent}, secrets.randbits(62)
        ).pack()

    def signs_for(self, entry: Entry) -> bool:
        """Return whether this agent has the key of an entry with its id."""
        if self._secret is None:
            return True
        known = entry.profile.key[KEY_LENGTH:] if entry.profile else self.find_founder_key(entry.agent)
        return known in (None, self.key[KEY_LENGTH:])

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

    @property
    def founder_keys(self) -> tuple[bytes, ...]:
        """The verify keys of membership 0, for agents that do not know them; none where there are no keys."""
        keys = [self._founders.get(agent) for agent in range(self.num_founders)]
        return () if self._secret is None else tuple(b"" if key is None else key.encode() for key in keys)

    def learn_founders(self, keys: tuple[bytes, ...]) -> None:
        """Take over the verify keys of membership 0 that the shard does not name, from a neighbour."""
        texts = [key.decode("ascii", "replace") for key in keys]
        if len(texts) != self.num_founders or not all(is_key(text) for text in texts):
            raise RefusedError("malformed", "keys of another number of agents")
        differing = [k for k, text in enumerate(texts) if self._founders.get(k, text) != text]
        if differing:
            raise RefusedError("signature", f"another key of agent {differing[0]} than the one in the shard")
        self._founders = dict(enumerate(texts))
        write_atomically(self._run / FOUNDERS_FILE, to_json(texts).encode(), PRIVATE)

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
        try:
            check_address(profile.address, "")
        except GossamerError:
            raise RefusedError("malformed", "an address that cannot be") from None
        if self._secret is None:
            return Contact(profile.address, None)
        curve = profile.key[:KEY_LENGTH]
        if len(profile.key) != 2 * KEY_LENGTH or not (is_key(curve) and is_key(profile.key[KEY_LENGTH:])):
            raise RefusedError("malformed", "a key that cannot be")
        unchanged = isinstance(sender, int) and known.get(sender) == curve
        if not unchanged and (profile.key not in admitted or (isinstance(sender, str) and sender != curve)):
            raise RefusedError(
                "sender", f"the key {profile.key} of agent {entry.agent} is not admitted (gossamer admit)"
            )
        return Contact(profile.address, curve)

    def _announce(self, contact: Mapping[str, str]) -> None:
        write_atomically(self._run / CONTACT_FILE, to_json(contact).encode(), PRIVATE)

    def _read_founders(self) -> dict[int, str]:
        path, m = self._run / FOUNDERS_FILE, self.num_founders
        found = {k: key for k, key in enumerate(self._shard.membership.verify_keys) if key is not None}
        if path.exists():
            stored = read_json(path, MAX_FOUNDERS_BYTES)
            if not isinstance(stored, list) or len(stored) != m or not all(is_key(str(key)) for key in stored):
                raise GossamerError(f"{path} is damaged; remove it, and the agent asks its neighbours again")
            found = dict(enumerate(map(str, stored))) | found
        agent = self._shard.membership.agent
        if self._secret is not None and agent < m and agent not in found:
            found[agent] = self.key[KEY_LENGTH:]
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
