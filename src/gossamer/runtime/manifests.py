"""Typed models of the JSON files that Gossamer writes and reads back: what each key holds, and within which bounds."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from gossamer.errors import GossamerError
from gossamer.runtime.addresses import Contact, check_address, is_public_key
from gossamer.runtime.documents import Document

SHARD = 2  # format version of a shard's manifest
LARGEST = 2**53  # whole numbers up to here are exact in every reader of JSON
MOST_SITES = 10_000  # every one of them passes on a vector with numbers of all
RUN = re.compile(r"[A-Za-z0-9._-]{1,64}")  # it becomes a folder's name


def _run(name: str) -> str:
    if not RUN.fullmatch(name):
        raise ValueError("expected up to 64 letters, digits, dots or dashes")
    return name


def _address(address: str) -> str:
    try:
        return check_address(address, "")
    except GossamerError as error:
        raise ValueError(str(error).removeprefix(": ").partition(", got")[0]) from None


def _key(key: str) -> str:
    if not is_public_key(key):
        raise ValueError("expected a public key of 40 characters, a half of what gossamer keys prints")
    return key


Count = Annotated[int, Field(ge=0, le=LARGEST)]
Number = Annotated[int, Field(ge=0, lt=2**31)]  # of an agent or a rank
Classes = Annotated[int, Field(ge=2, lt=2**31)] | None
Run = Annotated[str, AfterValidator(_run)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Score = float | None  # null: not a number


class StoredContact(Document):
    address: Annotated[str, AfterValidator(_address)]
    key: Annotated[str, AfterValidator(_key)] | None

    def contact(self) -> Contact:
        return Contact(self.address, self.key)


class Facts(Document):
    """Numbers of a share, of which some are those of all agents."""

    num_agents: Annotated[int, Field(ge=1, lt=2**31)]
    num_vertices: Annotated[int, Field(ge=1, le=LARGEST)]
    num_labelled: Annotated[int, Field(ge=1, le=LARGEST)]
    num_classes: Classes


class Manifest(Document):
    """Every shard.json."""

    format: Literal[2]
    checksums: dict[str, Digest]


class MemberManifest(Manifest):
    """Of an agent's shard: which run it belongs to, where it listens, whom it talks to."""

    agent: Number
    run: Run
    contact: StoredContact
    neighbours: dict[str, StoredContact]
    members: list[Annotated[str, AfterValidator(_key)] | None]  # verify keys of all agents
    settings: dict[str, Any]


class ShardManifest(MemberManifest, Facts):
    """Of a shard that was cut, or planned."""

    keep: Annotated[int, Field(ge=1, lt=2**31)]


class SiteManifest(MemberManifest):
    """Of a site's shard before planning."""

    num_classes: Classes


class RankManifest(Manifest, Facts):
    """Of a shard that was cut for a rank of a cluster."""

    rank: Number
    ranks: Annotated[int, Field(ge=1, lt=2**31)]
    agents: Annotated[list[Number], Field(min_length=1)]


class Data(Document):
    name: str
    fingerprint: Annotated[str, Field(max_length=1000)]


class Volume(Document):
    """Of the messages of a phase."""

    rows: Count
    bytes: Count


class Bytes(Document):
    bytes: Count


class BytesOfPhases(Document):
    forward: Bytes
    backward: Bytes
    consensus: Bytes


class Phases(Document):
    forward: Count
    backward: Count
    consensus: Count


class LinkVolume(Document):
    sender: Number
    receiver: Number
    forward_rows: Count
    forward_bytes: Count
    backward_rows: Count
    backward_bytes: Count
    consensus_rows: Count
    consensus_bytes: Count
    shared_edges: Count


class Messages(Document):
    """What a step sends (messages.py)."""

    forward: Volume
    backward: Volume
    consensus: Volume
    evaluation: Volume
    plain: BytesOfPhases
    paper: Volume
    links: list[LinkVolume]


class PlanOfRanks(Document):
    """What was known of a deployment when its shares were cut for ranks."""

    name: str
    num_vertices: Count
    num_edges: Count
    num_classes: Classes
    num_links: Count
    added_links: Count
    spectral_radius: Annotated[float, Field(ge=0)]
    edges_kept: Annotated[float, Field(ge=0, le=1)]
    messages: Messages
    between_ranks: Phases


class RunManifest(Document):
    """run.json. Older versions may lack settings, which then have the values of that time."""

    format: Literal[1]
    settings: dict[str, Any]
    data: Data
    versions: dict[str, str] = Field(default_factory=dict)
    step: Count = 0
    complete: bool = False
    plan: PlanOfRanks | None = None
    summary: dict[str, Any]


class ScoresOfMask(Document):
    """The accuracy of classes, or the mean squared error of real values."""

    loss: Score
    accuracy: Score = None
    mse: Score = None

    @model_validator(mode="after")
    def _one_score(self) -> "ScoresOfMask":
        if {"accuracy", "mse"} <= self.model_fields_set or not {"accuracy", "mse"} & self.model_fields_set:
            raise ValueError("expected accuracy or mse")
        return self


class Evaluation(Document):
    """A line of metrics.jsonl in a run directory."""

    step: Count
    train: ScoresOfMask
    validation: ScoresOfMask
    test: ScoresOfMask
    disagreement: Score
    stationarity: Score = None
    best_stationarity: Score = None


class ReferenceEvaluation(Evaluation):
    """A line of references.jsonl."""

    model: Literal["centralised", "graphless"]


Sums = Annotated[list[Score], Field(min_length=3, max_length=3)]


class AgentEvaluation(Document):
    """A line of a peer's metrics.jsonl: for each mask the sums of losses and of hits or squared errors, and a count."""

    step: Count
    train: Sums
    validation: Sums
    test: Sums
