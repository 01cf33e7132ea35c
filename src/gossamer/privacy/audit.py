"""The audit: what curious agents learn about all other agents' vertices, from the plan and from attacks on a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.agents.salts import Secrets
from gossamer.array_types import Floats
from gossamer.privacy.algebra import VertexRanks, find_alone, measure_ranks
from gossamer.privacy.canaries import CanaryAudit
from gossamer.privacy.equations import collect_equations
from gossamer.privacy.features import FeatureAttack, attack_features
from gossamer.privacy.knowledge import (
    Knowledge,
    check_curious,
    find_knowledge,
    find_known_steps,
    know_weights,
)
from gossamer.privacy.labels import LabelAttack, attack_labels
from gossamer.privacy.membership import MembershipAttack
from gossamer.privacy.record_checks import check_fit
from gossamer.privacy.recording import Lockstep, record_run
from gossamer.privacy.seen_rows import Fields, SeenPlan, find_seen_plan
from gossamer.privacy.tracing import trace_weights
from gossamer.runs.deployment import Deployment
from gossamer.runs.evaluated_steps import find_measures
from gossamer.runs.recordings import Recording, is_audited
from gossamer.runs.settings import Settings

if TYPE_CHECKING:
    from gossamer.privacy.encoded import EncoderAudit

ATTACKED_STEPS = 60  # of a run, unless more are asked for
DENSE_SAMPLE, SPARSE_SAMPLE = 500, 60  # vertices attacked, with few features and with many
MANY_FEATURES = 300  # above which a vertex takes up to a second


@dataclass(frozen=True)
class NeighbourAudit:
    """Findings about one agent."""

    agent: int
    ranks: VertexRanks
    weights: (
        str  # what consensus reveals of w_z: exact, approximate, noisy, hidden (but for the observer's own), or none
    )
    num_labels: int  # boundary training vertices
    labels_alone: int

    @property
    def boundary(self) -> int:
        return len(self.ranks.vertices)

    def to_dict(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "boundary_vertices": self.boundary,
            "alone": int(self.ranks.alone.sum()),
            "in_sums": int((~self.ranks.alone).sum()),
            "identifiable_vertices": int(self.ranks.identifiable.sum()),
            "rank": int(self.ranks.rank.max(initial=0)),
            "boundary_labels": self.num_labels,
            "labels_alone": self.labels_alone,
            "weights": self.weights,
        }


@dataclass
class Audit:
    """All that the curious agents learn; attacks are None where they were not run."""

    curious: tuple[int, ...]
    knowledge: Knowledge
    settings: Settings
    num_features: int
    neighbours: list[NeighbourAudit]
    steps: int  # of the whole run
    attacked_steps: int
    separable: tuple[int, ...] = ()  # agents whose psi_z follows from the curious ones' masked sums
    recorded: bool = False  # attacks read messages of the run itself, not of a simulation
    judged: bool = True  # the truth is at hand: all agents' data, not that of one alone
    repeated_pads: int | None = None  # sessions of a masked run whose pads were used twice; None: not looked up
    feature_attack: FeatureAttack | None = None
    label_attack: LabelAttack | None = None
    membership: MembershipAttack | None = None
    encoder: "EncoderAudit | None" = None  # of a run with one: `rank` is then that of features behind the encodings
    epsilon: float | None = None  # that is proved
    canaries: CanaryAudit | None = None  # the epsilon that is exceeded, by canaries in the run

    @property
    def boundary_vertices(self) -> int:
        return sum(one.boundary for one in self.neighbours)

    @property
    def identifiable_vertices(self) -> int:
        return sum(int(one.ranks.identifiable.sum()) for one in self.neighbours)

    def _rate(self, found: int, tried: int) -> float | None:
        return (found / tried if tried else 0.0) if self.judged else None

    def to_dict(self) -> dict[str, Any]:
        """The object of `--json`; rates are None where the truth is not at hand."""
        attacks: dict[str, Any] = {"features": None, "labels": None}
        if self.feature_attack is not None:
            found, tried = self.feature_attack.count()
            attacks["features"] = {
                "rate": self._rate(found, tried),
                "baseline": max(self.feature_attack.baselines.values(), default=0.0) if self.judged else None,
                "baselines": self.feature_attack.baselines,
                "found": found,
                "tried": tried,
                "method": self.feature_attack.method,
            }
        if self.label_attack is not None:
            found, tried = self.label_attack.count()
            counts = self.label_attack.counts
            attacks["labels"] = {
                "rate": self._rate(found, tried),
                "baseline": self.label_attack.baseline,
                "found": found,
                "tried": tried,
            }
            if counts:
                attacks["class_counts"] = {
                    "rate": float(np.mean(list(counts.values()))),
                    "baseline": self.label_attack.counts_baseline,
                }
        if self.membership is not None:
            attacks["membership"] = self.membership.to_dict()
        return {
            "observers": list(self.curious),
            "boundary_vertices": self.boundary_vertices,
            "identifiable_vertices": self.identifiable_vertices,
            "rank": max((int(one.ranks.rank.max(initial=0)) for one in self.neighbours), default=0),
            "features": self.num_features,
            "attacks": attacks,
            "epsilon": self.epsilon,
            "epsilon_exceeded": None if self.canaries is None else self.canaries.epsilon,
            "encoder": None if self.encoder is None else self.encoder.to_dict(),
            "masks_known": self.knowledge.masks_known,
            "weights_known": self.knowledge.weights_known,
            "separable_sums": list(self.separable),
            "repeated_pads": self.repeated_pads,
            "steps": self.steps,
            "attacked_steps": self.attacked_steps,
            "recorded": self.recorded,
            "neighbours": [
                one.to_dict() | {"features": _fraction(self.feature_attack, one.agent)} for one in self.neighbours
            ],
        }


def _name_weights(exact: bool, knowledge: Knowledge) -> str:
    return "exact" if exact else "approximate" if knowledge.weights_known else "hidden"


def _fraction(attack: FeatureAttack | None, agent: int) -> dict[str, int] | None:
    return None if attack is None else dict(zip(("found", "tried"), attack.count(agent), strict=True))


def choose_curious(deployment: Deployment) -> int:
    """The agent that other agents' vertices have most edges to: the one that sees most of them."""
    entries = deployment.shift.tocoo()
    a = deployment.assignment
    apart = a[entries.row] != a[entries.col]
    pairs = np.unique(np.stack([a[entries.row][apart], entries.col[apart]]), axis=1)
    return int(np.bincount(pairs[0], minlength=deployment.num_agents).argmax())


def audit_deployment(
    deployment: Deployment,
    settings: Settings,
    curious: Sequence[int],
    knowledge: Knowledge | None = None,
    fields: tuple[Fields, Fields] | None = None,
) -> tuple[Audit, SeenPlan]:
    """Audit the plan alone, by algebra, for a run of all the settings' steps; `fields` as find_seen_plan has them."""
    who = check_curious(curious, deployment.num_agents)
    known = find_knowledge(settings) if knowledge is None else knowledge
    seen = find_seen_plan(deployment, who, fields)
    layer = deployment.network.layers[0]
    neighbours = []
    for z in range(deployment.num_agents):
        if z in who or not deployment.exchanging[list(who), z].any():
            continue
        steps = find_known_steps(deployment, settings, known, who, z, settings.steps)
        ranks = measure_ranks(
            seen.evaluation.get(z), seen.training.get(z), steps, layer.width, layer.inputs, layer.dropout
        )
        backward = seen.backward.get(z)
        received = known.weights_known and bool(deployment.links[list(who), z].any())
        exact = received if settings.mix_first else know_weights(deployment, settings, known, who, z)
        neighbours.append(
            NeighbourAudit(
                z,
                ranks,
                _name_weights(exact, known) if settings.consensus_every else "none",
                0 if backward is None else len(backward.vertices),
                0 if backward is None else int(find_alone(backward.matrix).sum()),
            )
        )
    known_sums = settings.masks and known.combination_known
    mean_known = find_measures(settings) != "none"
    separable = find_separable(deployment.certificate.combination, who, mean_known) if known_sums else ()
    return Audit(who, known, settings, layer.inputs, neighbours, settings.steps, 0, separable), seen


def find_separable(C: Floats, curious: Sequence[int], mean_known: bool = False) -> tuple[int, ...]:
    """Agents z whose psi_z is a combination of the curious agents' masked sums: e_z is in the row space of their rows
    of C without their own columns, whose psi they know. The mean of all weights is one more row, of ones."""
    others = np.setdiff1d(np.arange(len(C)), curious)
    known = C[np.array(curious)]
    if mean_known:
        known = np.concatenate([known, np.ones((1, len(C)))])
    return tuple(others[find_alone(known[:, others])].tolist())


def attack_run(
    audit: Audit,
    seen: SeenPlan,
    deployment: Deployment,
    lockstep: Lockstep,
    steps: int | None,
    sample: int | None,
    recording: Recording | None = None,
    secrets: Secrets | None = None,
) -> Audit:
    """Attack a recording of the curious agents. Without one, the settings' run is trained again, one host an agent and
    with the `secrets` of a launch, and recorded."""
    settings, who = audit.settings, audit.curious
    attacked = min(settings.steps, ATTACKED_STEPS if steps is None else steps)
    if recording is None:
        keep = partial(is_audited, settings)
        recording = record_run(deployment, settings, who, attacked, lockstep, keep, secrets)
    else:
        attacked = min(attacked, recording.steps)
        recording = recording.limit(attacked)
        check_fit(recording, seen, deployment, settings)
        audit.recorded = True
    senders = sorted({*seen.evaluation, *seen.training})
    traced = trace_weights(recording, deployment, settings, audit.knowledge, who, senders, attacked)
    equations = collect_equations(recording, seen, traced, deployment, settings, audit.knowledge)
    few = audit.num_features <= MANY_FEATURES
    wanted = (DENSE_SAMPLE if few else SPARSE_SAMPLE) if sample is None else sample
    audit.attacked_steps = attacked
    audit.feature_attack = attack_features(equations, deployment, who, wanted, settings.seed, audit.judged)
    audit.label_attack = attack_labels(recording, seen, deployment, settings, who, audit.judged)
    return audit
