"""A run directory that is watched: what `gossamer train` has written of its run so far."""

import contextlib
from collections import Counter
from functools import cached_property
from pathlib import Path

from gossamer.agents.scores import choose_score
from gossamer.data.tasks import infer_stored_task
from gossamer.errors import GossamerError
from gossamer.files import LOCK, is_in_use
from gossamer.report.live.certificates import view_stored_certificate
from gossamer.report.live.evaluations import EvaluationFile, view_evaluation
from gossamer.report.live.layout import Positions, place_agents
from gossamer.report.live.traffic import LinkTraffic, count_mixed, view_links, view_simulated
from gossamer.report.live.view import AgentView, CertificateView, EvaluationView
from gossamer.runs.checkpoints import NEWEST, read_progress
from gossamer.runs.directory import read_references
from gossamer.runs.documents import read_json
from gossamer.runs.manifests import RunManifest
from gossamer.runs.run_json import read_manifest, read_run_settings
from gossamer.runs.tensors import read_arrays

TOPOLOGY, METRICS = "topology.json", "metrics.jsonl"


class WatchedDirectory:
    """A run directory. Files that grow or are replaced are read again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, read_manifest(folder)
        self.settings = read_run_settings(folder)
        self.steps = self.settings.steps
        self._read_at = self._checkpoint_at = 0  # nanoseconds since 1970
        self._kept = 0, 0.0  # step and seconds of the newest checkpoint
        self._evaluations = EvaluationFile(view_evaluation)
        self._references: dict[str, list[EvaluationView]] = {}
        self._references_at = 0
        self._traffic: LinkTraffic | None = None
        self._certificate: CertificateView | None = None
        self.running = False
        self.vertices, self._links = _read_network(folder)
        self.score = choose_score(
            self.settings.score, infer_stored_task(self.manifest.data.task, self.manifest.data.class_names)
        ).key()

    def read(self) -> RunManifest:
        """Read run.json, and how far the newest checkpoint is."""
        if not self.folder.is_dir():
            raise GossamerError(f"{self.folder} is no longer there")
        self.running = is_in_use(self.folder)
        with contextlib.suppress(OSError, GossamerError):  # one that is being replaced is read the next time
            changed = (self.folder / "run.json").stat().st_mtime_ns
            if changed != self._read_at:
                self.manifest, self._read_at = read_manifest(self.folder), changed
                self.steps = read_run_settings(self.folder).steps
                messages = self.manifest.summary.get("messages")
                self._traffic = None if messages is None else LinkTraffic(messages["links"])
        with contextlib.suppress(OSError):
            changed = (self.folder / NEWEST).stat().st_mtime_ns
            if changed != self._checkpoint_at:
                self._kept, self._checkpoint_at = read_progress(self.folder), changed
        return self.manifest

    @property
    def trained(self) -> bool:
        """True once the network is trained; its references may not be."""
        summary, patience = self.manifest.summary, self.settings.patience
        waited = summary.get("steps", 0) - summary.get("best_step", 0)
        return self.manifest.complete or self._kept[0] >= self.steps or 0 < patience <= waited

    @property
    def activity(self) -> str:
        """The work of the run's process once the network is trained."""
        return "training the references" if self.state == "training" and self.trained else ""

    def count_seconds(self, now: float) -> float:
        """Seconds of training: those of the newest checkpoint, and while the run goes on those since then, or since it
        was resumed. A process that resumes it takes the lock first and writes run.json when it has loaded its data."""
        known = float(self.manifest.summary.get("seconds") or 0.0)
        if self.manifest.complete:
            return known
        if not self.running or self.trained:
            return max(known, self._kept[1])
        began, locked = max(self._read_at, self._checkpoint_at), 0
        with contextlib.suppress(OSError):
            locked = (self.folder / LOCK).stat().st_mtime_ns
        return self._kept[1] + (0.0 if locked > began else max(0.0, now - began / 1e9))

    @property
    def state(self) -> str:
        """The state of the run: "training", "finished", "stopped", or "starting" before its first evaluation.

        A process that has ended before it leaves its lock behind.
        """
        if self.manifest.complete:
            return "finished"
        begun = (self.folder / METRICS).is_file()
        if self.running:
            return "training" if begun else "starting"
        return "stopped" if begun or (self.folder / LOCK).is_file() else "starting"

    @property
    def began(self) -> float:
        """Start of the run, in seconds since 1970."""
        return (self.folder / TOPOLOGY).stat().st_mtime

    @property
    def evaluations(self) -> list[EvaluationView]:
        """The evaluations so far."""
        return self._evaluations.read(self.folder / METRICS)

    @property
    def references(self) -> dict[str, list[EvaluationView]]:
        """Evaluations of the references that have been trained."""
        path = self.folder / "references.jsonl"
        with contextlib.suppress(OSError, GossamerError):
            changed = path.stat().st_mtime_ns
            if changed != self._references_at:
                found = read_references(self.folder)
                self._references = {name: list(map(view_evaluation, history)) for name, history in found.items()}
                self._references_at = changed
        return self._references

    @property
    def certificate(self) -> CertificateView | None:
        """The certificate of the topology; None before a run has said how many data edges its links carry."""
        summary, plan = self.manifest.summary, self.manifest.plan
        kept = summary.get("edges_kept", plan and plan.edges_kept)
        relayed = summary.get("edges_relayed", plan.edges_relayed if plan else 0.0)
        if self._certificate is None and kept is not None:
            with contextlib.suppress(OSError, GossamerError, KeyError, TypeError, ValueError):
                stored = read_json(self.folder / TOPOLOGY)
                self._certificate = view_stored_certificate(stored, float(kept), float(relayed))
        return self._certificate

    @cached_property
    def positions(self) -> Positions:
        """Places of the agents."""
        return place_agents(range(self.settings.agents), self._links)

    def view_agents(self, step: int, now: float) -> list[AgentView]:
        """The agents after so many steps; all of them stand where the run stands."""
        traffic = self._traffic or LinkTraffic({"sender": k, "receiver": z} for k, z in self._links)
        links = view_links(traffic, step, count_mixed(self.settings, step))
        age = None
        with contextlib.suppress(OSError):
            age = max(0.0, now - (self.folder / NEWEST).stat().st_mtime)
        sizes = [self.vertices.get(agent, 0) if self.vertices else None for agent in range(self.settings.agents)]
        state = "finished" if self.activity else self.state
        return [
            view_simulated(agent, state, step, (size, None), age, links.get(agent, []))
            for agent, size in enumerate(sizes)
        ]


def _read_network(folder: Path) -> tuple[Counter[int], list[tuple[int, int]]]:
    """Vertices by agent, and links; none where a rank has its own part alone."""
    try:
        arrays = read_arrays(folder / "network.safetensors")
    except (OSError, GossamerError):
        return Counter(), []
    combination = arrays["combination"]
    joined = (combination != 0).reshape(-1, *combination.shape[-2:]).any(0)
    links = [(int(k), int(z)) for k, z in zip(*joined.nonzero(), strict=True) if k != z]
    return Counter(map(int, arrays["assignment"])), links
