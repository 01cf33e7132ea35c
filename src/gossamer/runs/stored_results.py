"""Contents of a run directory that a report reads, checked: the summary, the certificate, the timeline, an audit.

Keys that are not used are ignored, so that a directory of an older version can be reported.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from gossamer.files import write_atomically
from gossamer.runs.documents import FORMAT, Document, Model, check_format, read_json, to_json, validate
from gossamer.runs.manifests import Count, LinkVolume, MaskScores, Number, PhaseBytes, Volume

AUDIT_FILE = "audit.json"
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Finite = float | None


class MaskTable(Document, extra="ignore"):
    """Scores of a model on each mask."""

    train: MaskScores
    validation: MaskScores
    test: MaskScores


class StoredMessages(Document, extra="ignore"):
    """Messages of one step, and bytes of the whole run."""

    forward: Volume
    backward: Volume
    consensus: Volume
    evaluation: Volume
    plain: PhaseBytes
    paper: Volume
    links: list[LinkVolume]
    total_bytes: Count | None = None


class StoredMembership(Document, extra="ignore"):
    number: Count
    members: list[Number]
    from_step: Count | None = None
    seconds: Finite = None
    stopped: Finite = None


class StoredSummary(Document, extra="ignore"):
    """The summary of run.json; that of a run that has not ended is empty."""

    score: str | None = None
    distributed: MaskTable | None = None
    centralised: MaskTable | None = None
    graphless: MaskTable | None = None
    own: MaskTable | None = None  # of one agent's folder
    disagreement: Finite = None
    stationarity: Finite = None
    steps: Count | None = None
    best_step: Count | None = None
    edges_kept: Finite = None
    edges_relayed: Finite = 0.0
    messages: StoredMessages | None = None
    seconds: Finite = None
    memberships: list[StoredMembership] = []


class StoredSequence(Document, extra="ignore"):
    """Links that change, in topology.json."""

    period: Count | None
    contraction: float
    symmetric: bool


class StoredCertificate(Document, extra="ignore"):
    """topology.json."""

    agents: Number
    spectral_radius: Finite
    objective: Finite
    lower_bound: Finite
    needed_links: list[Pair]
    added_links: list[Pair]
    missing_links: list[Pair] = []
    holds: dict[Literal["A1", "A2", "A3"], bool]
    asymmetry: Finite
    row_error: Finite
    off_links: Finite
    own_weight: Finite
    sparsity: Finite
    gap: Finite
    rounds: Count | None
    bytes_per_round: Count
    sequence: StoredSequence | None = None


class StoredEvent(Document, extra="ignore"):
    seconds: float
    step: Count
    text: str


class StoredTimeline(Document, extra="ignore"):
    """timeline.json."""

    memberships: list[StoredMembership]
    events: list[StoredEvent]
    missed: list[str] = []


class StoredNeighbour(Document, extra="ignore"):
    """Findings of an audit about one agent."""

    agent: Number
    boundary_vertices: Count
    alone: Count
    in_sums: Count
    identifiable_vertices: Count
    rank: Count
    boundary_labels: Count
    weights: str


class StoredAudit(Document, extra="ignore"):
    """audit.json: the object of `gossamer audit --json`, and what it means as sentences."""

    findings: list[str]
    observers: list[Number]
    features: Count
    steps: Count
    attacked_steps: Count
    recorded: bool
    neighbours: list[StoredNeighbour]


def write_findings(folder: Path, found: Mapping[str, Any], findings: Sequence[str]) -> None:
    """Leave what an audit found in the run directory; a later audit replaces it."""
    content = {"format": FORMAT, "findings": list(findings), **found}
    write_atomically(folder / AUDIT_FILE, (to_json(content, indent=2) + "\n").encode())


def read_stored(model: type[Model], path: Path, versioned: bool = True) -> Model | None:
    """Read and check a JSON file of a run directory; None if it is not there."""
    if not path.is_file():
        return None
    content = read_json(path)
    if versioned:
        check_format(content, path)
    return validate(model, content, str(path))
