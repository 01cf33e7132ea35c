"""Facts of a run as its directory has them, without its data set: what most sections of a report show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from gossamer.agents.scores import choose_score
from gossamer.array_types import Ints
from gossamer.errors import GossamerError
from gossamer.peers.agent_folders import EVALUATIONS_FILE
from gossamer.peers.evaluation_log import read_evaluation_log
from gossamer.peers.rehearsal.timeline import TIMELINE_FILE
from gossamer.peers.results import make_history
from gossamer.runs.arrays import StoredArrays
from gossamer.runs.directory import AGENTS_FOLDER, name_command, read_references
from gossamer.runs.documents import validate
from gossamer.runs.evaluations import check_order, read_evaluations
from gossamer.runs.manifests import Evaluation, RunManifest
from gossamer.runs.records import Record
from gossamer.runs.run_json import find_run_folder, read_manifest, read_run_settings
from gossamer.runs.settings import Settings
from gossamer.runs.stored_results import (
    AUDIT_FILE,
    StoredAudit,
    StoredCertificate,
    StoredMembership,
    StoredMessages,
    StoredSummary,
    StoredTimeline,
    read_stored,
)
from gossamer.runs.tensors import read_arrays

Kind = Literal["train", "launch", "cluster", "gather", "peer"]
MAX_PICTURE_BYTES = 700_000  # beyond which a picture is named, not embedded
SCRIPT_NAME = "rehearsal.toml"


@dataclass(frozen=True)
class RunFacts:
    """All that a run directory says; None or empty where it does not."""

    folder: Path
    given: Path  # the folder that was asked for: of an agent, the one around the run's
    kind: Kind
    manifest: RunManifest
    settings: Settings
    summary: StoredSummary
    evaluations: list[Record]
    references: dict[str, list[Record]]
    assignment: Ints | None  # a(i) [n]
    certificate: StoredCertificate | None
    timeline: StoredTimeline | None
    audit: StoredAudit | None
    pictures: Mapping[str, Path]  # "memberships", "reconstructions"
    problems: tuple[str, ...]  # files that could not be read

    @property
    def name(self) -> str:
        """The folder's name, under which a report shows the run."""
        return self.given.resolve().name or str(self.given)

    @property
    def unfinished(self) -> str | None:
        """The command by which a run that has not ended goes on; None if it has ended."""
        return None if self.manifest.complete else f"gossamer {name_command(self.folder)}"

    @property
    def score(self) -> str:
        """Name of the score that is validated on."""
        if self.summary.score:
            return self.summary.score
        if self.evaluations:
            return self.evaluations[-1]["score"]
        return "mse" if self.manifest.data.task == "regression" else "accuracy"

    @property
    def steps(self) -> int:
        """Steps that are done, as far as it is known."""
        last = self.evaluations[-1]["step"] if self.evaluations else 0
        return max(self.manifest.step, last) if self.summary.steps is None else self.summary.steps

    @property
    def messages(self) -> StoredMessages | None:
        """Messages of a step: where agents left or joined, of a step of the last membership."""
        return self.summary.messages

    @property
    def total_bytes(self) -> int | None:
        """Bytes of all steps; unknown where agents left or joined."""
        return None if self.messages is None or self.changed else self.messages.total_bytes

    @property
    def changed(self) -> bool:
        """Agents have left or joined while the run trained."""
        return len(self.memberships) > 1 and self.memberships[-1].from_step != 0

    @property
    def step_name(self) -> str:
        """A step that messages were counted of."""
        return "a step of the last membership" if self.changed else "a step"

    @property
    def first_settings(self) -> Settings:
        """Settings that the run was started with: those of the run directory have the agents that there were at the
        end."""
        first = len(self.memberships[0].members) if self.memberships else self.settings.agents
        return self.settings.model_copy(update={"agents": first})

    @property
    def num_agents_as_text(self) -> str:
        first, last = self.first_settings.agents, self.settings.agents
        return f"{last:,}" if first == last else f"{first:,}, later {last:,}"

    @property
    def memberships(self) -> list[StoredMembership]:
        return self.summary.memberships or ([] if self.timeline is None else self.timeline.memberships)

    @property
    def agent_ids(self) -> list[int]:
        """Ids of the run's agents: where some left or joined, those of the last membership, in their order."""
        last = self.memberships[-1].members if self.memberships else []
        return last if len(last) == self.settings.agents else list(range(self.settings.agents))

    @property
    def scripted(self) -> bool:
        """A rehearsal, whose script is in the directory."""
        return (self.folder / SCRIPT_NAME).is_file()


def read_run_facts(folder: Path) -> RunFacts:
    """Read a run directory, or the folder of an agent that has finished."""
    given, folder = folder, find_run_folder(folder)
    manifest, settings = read_manifest(folder), read_run_settings(folder)
    problems: list[str] = []

    def attempt(read: Any, *arguments: Any) -> Any:
        """The content of a file; a damaged one is a problem that the report names, as far as it can do without."""
        try:
            return read(*arguments)
        except (GossamerError, OSError) as error:
            problems.append(str(error).partition("\n")[0])
            return None

    summary = attempt(_read_summary, folder, manifest, settings.agents) or StoredSummary()
    pictures = {name: folder / f"{name}.png" for name in ("memberships", "reconstructions")}
    facts = RunFacts(
        folder=folder,
        given=given,
        kind=_find_kind(folder, manifest),
        manifest=manifest,
        settings=settings,
        summary=summary,
        evaluations=attempt(_read_history, folder) or [],
        references=attempt(read_references, folder) or {},
        assignment=attempt(_read_assignment, folder, settings.agents),
        certificate=attempt(_read_certificate, folder / "topology.json", settings.agents),
        timeline=attempt(read_stored, StoredTimeline, folder / TIMELINE_FILE),
        audit=attempt(read_stored, StoredAudit, folder / AUDIT_FILE),
        pictures={name: path for name, path in pictures.items() if path.is_file()},
        problems=tuple(problems),
    )
    return facts


def _find_kind(folder: Path, manifest: RunManifest) -> Kind:
    """The command that wrote the directory, as far as it can be told: ranks that have read a whole data set write what
    train does, so do gathered peers with public randomness, and a simulation of a launch what gathered peers do."""
    if manifest.agent is not None:
        return "peer"
    if (folder / AGENTS_FOLDER).is_dir():
        return "launch"
    if manifest.plan is not None:
        return "cluster"
    return "gather" if manifest.secrets or not manifest.data.fingerprint else "train"


def _read_summary(folder: Path, manifest: RunManifest, agents: int) -> StoredSummary:
    source = f"{folder / 'run.json'}, summary"
    summary = validate(StoredSummary, dict(manifest.summary), source)
    links = [] if summary.messages is None else summary.messages.links
    _check_ends([(one.sender, one.receiver) for one in links], agents, source)
    return summary


def _read_certificate(path: Path, agents: int) -> StoredCertificate | None:
    found = read_stored(StoredCertificate, path, versioned=False)
    if found is not None:
        _check_ends([*found.needed_links, *found.added_links], agents, str(path))
    return found


def _check_ends(links: Iterable[Sequence[int]], agents: int, source: str) -> None:
    """Require links between the run's agents."""
    strange = next((end for link in links for end in link if end >= agents), None)
    if strange is not None:
        raise GossamerError(f"{source}: expected links between agents 0 to {agents - 1}, found one of agent {strange}")


def _read_history(folder: Path) -> list[Record]:
    """Evaluations of a run; of a launch whose agents have not been gathered yet, those that an agent knows most of."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        logs = [read_evaluation_log(one) for one in sorted((folder / AGENTS_FOLDER).rglob(EVALUATIONS_FILE))]
        logged = max(logs, key=lambda one: one[-1]["step"] if one else -1, default=[])
        task = read_manifest(folder).data.task or "multiclass"
        return make_history(logged, choose_score(read_run_settings(folder).score, task).key(binned=True))
    history = cast(list[Record], read_evaluations(path, Evaluation))
    check_order(history, str(path))
    return history


def _read_assignment(folder: Path, agents: int) -> Ints | None:
    path = folder / "network.safetensors"
    if not path.is_file():
        return None
    found = read_arrays(path)
    arrays = StoredArrays(path, found, f"expected those of {agents} agents")
    return arrays.take_within("assignment", agents, len(found["assignment"]) if "assignment" in found else 0)
