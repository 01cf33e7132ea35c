"""Typed models of the JSON files of peers: shard.json of an agent or a site, and an agent's evaluations.jsonl."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from gossamer.errors import GossamerError
from gossamer.peers.network.addresses import Contact, check_address
from gossamer.peers.network.z85 import is_key
from gossamer.runs.documents import Document
from gossamer.runs.manifests import Count, DataIdentity, Manifest, Number, NumClasses, Score, ShareSizes

MAX_SITES = 10_000  # in planning, each passes on a vector with numbers of all
LEAST_SUMS = 6  # of a mask, those of one label (agents/scores.py)
RUN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")  # it becomes a folder's name


def _check_run_name(name: str) -> str:
    if not RUN_NAME.fullmatch(name):
        raise ValueError("expected up to 64 letters, digits, dots or dashes")
    return name


def _check_address(address: str) -> str:
    try:
        return check_address(address, "")
    except GossamerError as error:
        raise ValueError(str(error).removeprefix(": ").partition(", got")[0]) from None


def _check_key(key: str) -> str:
    if not is_key(key):
        raise ValueError("expected a public key of 40 characters, a half of what gossamer keys prints")
    return key


RunName = Annotated[str, AfterValidator(_check_run_name)]


class StoredContact(Document):
    address: Annotated[str, AfterValidator(_check_address)]
    key: Annotated[str, AfterValidator(_check_key)] | None

    def contact(self) -> Contact:
        return Contact(self.address, self.key)


class MemberManifest(Manifest):
    """Membership in shard.json, of every agent's shard."""

    agent: Number
    run: RunName
    contact: StoredContact
    neighbours: dict[str, StoredContact]
    members: list[Annotated[str, AfterValidator(_check_key)] | None]  # verify keys of all agents
    settings: dict[str, Any]
    data: DataIdentity | None = None  # None in shards from before it was stored


class ShardManifest(MemberManifest, ShareSizes):
    """shard.json of a shard that was cut, or planned."""

    keep: Annotated[int, Field(ge=1, lt=2**31)]
    names: list[str] | None = None  # of the agent's vertices, as its data set has them


class SiteManifest(MemberManifest):
    """shard.json of a site before planning."""

    num_classes: NumClasses


StoredSums = Annotated[list[Score], Field(min_length=LEAST_SUMS)]


class AgentEvaluation(Document):
    """A line of a peer's evaluations.jsonl: for each mask the sums of agents/scores.py."""

    step: Count
    train: StoredSums
    validation: StoredSums
    test: StoredSums
    network: dict[Literal["train", "validation", "test"], dict[str, Score]] | None = None  # scores of all agents
    best_step: Count | None = None
    disagreement: Score = None
    stationarity: Score = None
