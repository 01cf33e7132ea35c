"""A run: its settings, a host with the weights, the engine that drives it, and the evaluations so far."""

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.host import Host
from gossamer.agents.measures import evaluate
from gossamer.agents.ranking import rank_outputs, score_exactly
from gossamer.agents.salts import Secrets
from gossamer.agents.scores import ScoreKind, Scores, choose_score, compute_scores
from gossamer.agents.selection import has_waited, restore_best
from gossamer.agents.share import Share
from gossamer.agents.step import training_step
from gossamer.data import DataGraph
from gossamer.data.standardisation import Transform
from gossamer.errors import GossamerError
from gossamer.model import Params
from gossamer.runs.deployment import Deployment, Progress
from gossamer.runs.engine import Engine
from gossamer.runs.evaluated_steps import is_evaluated
from gossamer.runs.initial_weights import GivenWeights
from gossamer.runs.message_counts import count_messages, describe_deployment
from gossamer.runs.records import Description, MessageCounts, Record
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import check_tensors

StepFunction = Callable[[Host], Generator[Outbox, Inbox, tuple[Host, Tensor]]]  # one step, as training_step takes it
SHIFT_MARK = " with the shift "  # in the fingerprint of a run whose user gave D


@dataclass(frozen=True)
class Stage:
    """A stage before the graph network's: what follows when its steps are done (handover.py)."""

    name: str
    settings: Settings  # of the whole run
    share: Share  # with the edges between agents
    hand_over: Callable[[Host], Generator[Outbox, Inbox, Tensor]]  # to the next stage [hosted, width]
    follow: "Callable[[NDArray[Any]], Run]"  # the next stage's run at step 0, from what all hand over [n, width]


@dataclass
class Run:
    """A run and its progress. `host` holds the weights; `history` the evaluations so far."""

    settings: Settings
    full_deployment: Deployment | None  # None where each host has read its own share alone
    host: Host
    fingerprint: str  # of the data graph, and of a shift operator that the user gave
    engine: Engine
    own_shift: bool = False
    history: list[Record] = field(default_factory=list)
    seconds: float = 0.0
    plan: Description | None = None  # of the deployment when its shares were cut
    share_transform: Transform | None = None  # of the share that a host has read
    secrets: Secrets | None = None  # of all agents, for dropout and quantisation noise; None: drawn from the seed
    iterate: StepFunction = training_step
    stage: Stage | None = None  # None: the graph network's
    encoder: Params | None = None  # all agents' weights of the encoder, once it is trained, where the process leads
    since: int = 0  # the step since which it has had its agents: others may have been there before

    @property
    def deployment(self) -> Deployment:
        if self.full_deployment is None:
            raise AssertionError("this run knows its shares only")
        return self.full_deployment

    @property
    def whole_settings(self) -> Settings:
        """Settings of the run, whichever of its stages this is."""
        return self.settings if self.stage is None else self.stage.settings

    @property
    def transform(self) -> Transform | None:
        """Transform by which features and targets were standardised."""
        return self.share_transform if self.full_deployment is None else self.full_deployment.transform

    @property
    def target_scale(self) -> Tensor | None:
        """Factor of real values' errors in the units of the given targets."""
        return None if self.transform is None else self.transform.find_target_scale()

    @property
    def description(self) -> Description:
        """Data and topology in numbers, for reports."""
        return self.plan or describe_deployment(self.deployment)

    @property
    def messages(self) -> MessageCounts:
        """Messages of one step."""
        planned = None if self.plan is None else self.plan.get("messages")
        return planned if planned is not None else count_messages(self.deployment, self.settings)

    @property
    def complete(self) -> bool:
        """All steps are done, or an evaluation found the best score as old as the settings' patience."""
        step, settings = self.host.step, self.settings
        waited = is_evaluated(settings, step) and has_waited(self.host, settings.patience)
        return step >= settings.steps or waited

    @property
    def kept(self) -> Host:
        """The host with the weights to keep, of the best validation score or of the last step."""
        return restore_best(self.host)

    @property
    def score(self) -> ScoreKind:
        """The score to validate on."""
        return choose_score(self.settings.score, self.host.task)

    def scores(self, ranking: bool = False) -> Scores:
        """Loss and other scores on each mask, every vertex with its own agent's weights.

        Ranking scores, for which all hosts' outputs are gathered, if they are asked for or validated on.
        """
        return self._score(self.host, ranking)

    def final_scores(self) -> Scores:
        """All scores that fit the task, with the weights that are kept."""
        return self._score(self.kept, ranking=True)

    def _score(self, host: Host, ranking: bool) -> Scores:
        outputs, sums = self.engine.run(evaluate(host))
        parts = self.engine.total(torch.cat(list(sums.values()))).split([len(part) for part in sums.values()])
        task = host.task
        found = compute_scores([dict(zip(sums, parts, strict=True))], task, outputs.shape[-1], self.target_scale)
        if task != "regression" and (ranking or self.score.needs_ranking):
            for mask, scores in self._rank(outputs).items():
                found[mask] |= scores
        return found

    def _rank(self, outputs: Tensor) -> Scores:
        """Exact ranking scores on each mask from the hosted vertices' outputs."""
        on = self.host.full_pass
        everyone, targets = self._gather(outputs), self._gather(on.targets.double()).to(on.targets.dtype)
        masks = {name: self._gather(mask.double()).bool() for name, mask in on.masks.items()}
        return {name: score_exactly(*rank_outputs(everyone[mask], targets[mask])) for name, mask in masks.items()}

    def predict(self) -> Tensor:
        """Distributed inference (eq. (5)-(7)): the network's output for every vertex, in vertex order; real values in
        the units of the given targets."""
        outputs, _ = self.engine.run(evaluate(self.kept))
        whole = self._gather(outputs)
        return whole if self.transform is None else self.transform.restore_outputs(whole)

    def _gather(self, part: Tensor) -> Tensor:
        """All hosts' rows in vertex order, from those of the hosted vertices."""
        ordered = part.new_zeros(self.description["num_vertices"], *part.shape[1:])
        ordered[torch.from_numpy(self.host.full_pass.vertices)] = part
        return self.engine.total(ordered)


class StartRun(Protocol):
    """A function that puts agents on hosts: all on one (engines.simulation), or on ranks (engines.cluster.job)."""

    def __call__(
        self,
        graph: DataGraph,
        settings: Settings,
        progress: Progress | None = None,
        *,
        assignment: NDArray[np.int64] | None = None,
        combination: NDArray[np.float64] | None = None,
        shift: Any = None,
        initial: GivenWeights | None = None,
        secrets: Secrets | None = None,
        encodings: NDArray[Any] | None = None,
    ) -> Run:
        """A run at step 0, by the settings or by an assignment, a C, a shift operator D, initial weights or secrets
        that the user gives. With an encoder it is the first stage's run, unless there are `encodings` already."""
        ...


def fingerprint_data(graph: DataGraph, shift: Any = None) -> str:
    """Fingerprint of the data graph, and of a shift operator that the user gave."""
    return graph.fingerprint() + (f"{SHIFT_MARK}{_hash(shift)}" if shift is not None else "")


def _hash(shift: Any) -> str:
    entries = shift.tocsr().sorted_indices()
    parts = (entries.indptr.astype(np.int64), entries.indices.astype(np.int64), entries.data.astype(np.float64))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def restore_weights(
    run: Run,
    params: dict[str, Tensor],
    step: int,
    update_state: dict[str, Tensor] | None = None,
    source: str = "the weights",
) -> Run:
    """The run with all agents' stored weights (and update statistics, if given) in place of the hosted agents' own,
    copied so that their memory layout is that of initial ones."""

    def select(own: dict[str, Tensor], stored: dict[str, Tensor], what: str) -> dict[str, Tensor]:
        """The hosted agents' part of the stored arrays, which must be like `own`."""
        expected = {name: (t.dtype, (run.host.num_agents, *t.shape[1:])) for name, t in own.items()}
        check_tensors(stored, expected, f"{source} ({what})")
        wrong = [name for name, part in stored.items() if not bool(part.isfinite().all())]
        if wrong:
            raise GossamerError(f"{source} ({what}): {wrong[0]} holds NaN or infinite numbers")
        agents = list(run.host.agents)
        return {name: stored[name][agents] for name in own}

    host = replace(
        run.host,
        params=select(run.host.params, params, "weights"),
        state=run.host.state if update_state is None else select(run.host.state, update_state, "update statistics"),
        step=step,
    )
    return replace(run, host=host)
