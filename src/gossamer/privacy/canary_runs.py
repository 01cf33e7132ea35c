"""Canaries in a private run: an auditor with the strongest knowledge that the proof allows for.

Of some training vertices a coin decides whether each is taken in, or gives nothing: neither an example nor a row. The
auditor knows all other data, all weights and every release, and not the coins. Every release is noise, what others
give, which the auditor subtracts, and sum_j b_j v_j over the canaries, where b_j is the coin and v_j what the canary
would give. The score of a canary is the best linear estimate of its coin from all releases together.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.agents import Host, Inbox, Outbox, training_step
from gossamer.agents.measures import evaluate
from gossamer.agents.noisy_sums import combine_sums, draw_sums, normalise_rows, plan_sums
from gossamer.agents.private_gradient import private_gradient
from gossamer.agents.secret_streams import derive_secrets
from gossamer.agents.share import Share
from gossamer.array_types import Ints
from gossamer.errors import GossamerError
from gossamer.generators import drive
from gossamer.privacy.canaries import CanaryAudit, audit_scores
from gossamer.runs.deployment import Deployment
from gossamer.runs.handover import score_classes
from gossamer.runs.hosts import build_stage_host, cut_share, normalise_features
from gossamer.runs.settings import Settings
from gossamer.runs.stages import ENCODER, GRAPH, stage_settings

LEAST_CANARIES = 10
_Value = TypeVar("_Value")


def audit_with_canaries(deployment: Deployment, settings: Settings, canaries: int, seed: int) -> CanaryAudit:
    """Train a private run once with so many canaries, and bound its epsilon from below."""
    spec = settings.privacy_spec
    if spec is None or spec.level != "node" or not spec.noise or spec.rate != 1:
        raise GossamerError(
            "canaries are vertices of a run with --privacy node:... and every example in each step (rate=1); audit "
            "such a run, or leave --canaries out"
        )
    train = np.flatnonzero(deployment.graph.train)
    if not LEAST_CANARIES <= canaries <= len(train):
        raise GossamerError(f"expected {LEAST_CANARIES} to {len(train)} canaries, got {canaries}")
    random = np.random.default_rng(seed)
    vertices = np.sort(random.choice(train, canaries, replace=False))
    auditor = _Auditor(settings, cut_share(deployment, settings), vertices, random.random(canaries) < 0.5)
    encoder = auditor.follow_stage(ENCODER, None)
    outputs, _ = _run(evaluate(encoder))
    scores, rows = score_classes(outputs[encoder.full_pass.by_vertex], auditor.share)
    noise = spec.sum_noise(settings.encoder_steps, settings.steps)
    hops = auditor.follow_hops(rows, spec.hops, noise)
    auditor.follow_stage(GRAPH, torch.cat([scores, *hops], dim=1).numpy())
    return audit_scores(auditor.scores, auditor.taken.tolist(), spec.delta)


@dataclass
class _Auditor:
    """A private run with canaries on one host of all agents, and the scores of the canaries so far."""

    settings: Settings
    share: Share  # of all agents: vertex i has row i
    vertices: Ints  # the canaries
    taken: NDArray[np.bool_]

    def __post_init__(self) -> None:
        # sum of V V^T / variance and of V (release - what others give) / variance, over all releases
        self.precision = np.zeros((len(self.vertices), len(self.vertices)))
        self.evidence = np.zeros(len(self.vertices))

    @property
    def scores(self) -> NDArray[np.float64]:
        """Estimates of the coins, which have mean 1/2 and variance 1/4 before."""
        return np.asarray(np.linalg.solve(self.precision + 4 * np.eye(len(self.vertices)), self.evidence + 2))

    def follow_stage(self, name: str, handed: NDArray[Any] | None) -> Host:
        """Train a stage and score its private gradients; returns the host after it, all vertices by number."""
        host = self._build(name, handed, self.vertices[~self.taken])
        others = self._build(name, handed, self.vertices)
        inputs: Any = normalise_features(self.share.features) if handed is None else handed
        rows = inputs[self.vertices]
        x = torch.from_numpy(rows.toarray() if sparse.issparse(rows) else rows).to(host.torch_dtype)
        for _ in range(stage_settings(self.settings, name).steps):
            self._score_step(host, others, x)
            host, _ = _run(training_step(host))
        return host

    def _build(self, name: str, handed: NDArray[Any] | None, left_out: Ints) -> Host:
        """A stage without the examples of some vertices. Counts are public, and stay."""
        train = self.share.masks["train"].copy()
        train[left_out] = False
        share = replace(self.share, masks={**self.share.masks, "train": train})
        return build_stage_host(name, share, handed, self.settings)

    def _score_step(self, host: Host, others: Host, x: Tensor) -> None:
        """Take in a step's private gradients; v_j is the canary's clipped gradient."""
        private = host.training.private
        assert private is not None
        _, noisy = _run(private_gradient(host, private))
        at = replace(others, params=host.params, step=host.step)
        _, known = _run(private_gradient(at, replace(private, noise=0.0)))
        agent = torch.from_numpy(self.share.owner[self.vertices])
        W, b = (host.params[f"layer.0.{part}"][agent] for part in ("weight", "bias"))
        classes = torch.from_numpy(self.share.targets[self.vertices])
        signal = (torch.einsum("nd,ndc->nc", x, W) + b).softmax(1)
        signal = signal - torch.nn.functional.one_hot(classes, b.shape[1])
        norms = (signal.square().sum(1) * (x.square().sum(1) + 1)).sqrt()
        signal = signal * (private.clip / norms.clamp(min=private.clip))[:, None]
        G = {part: (noisy[part] - known[part])[agent] * (private.rate * host.num_labelled) for part in noisy}
        inner = torch.einsum("nd,ndc,nc->n", x, G["layer.0.weight"], signal) + (G["layer.0.bias"] * signal).sum(1)
        both = (x @ x.T + 1) * (signal @ signal.T) * (agent[:, None] == agent)
        variance = (private.noise * private.clip) ** 2
        self.precision += both.double().numpy() / variance
        self.evidence += inner.double().numpy() / variance

    def follow_hops(self, rows: Tensor, hops: int, noise: float) -> list[Tensor]:
        """Estimates after each hop; canaries that are not taken give no rows. Their sums are scored."""
        plan, at = plan_sums(self.share, weighted=True), torch.from_numpy(self.vertices)
        secrets = derive_secrets(self.settings.seed, range(self.settings.agents))
        found: list[Tensor] = []
        for hop in range(hops):
            whole = normalise_rows(found[-1] if found else rows)
            given, known = whole.clone(), whole.clone()
            given[torch.from_numpy(self.vertices[~self.taken])] = 0.0
            known[at] = 0.0
            sums = draw_sums(plan, given, hop, noise, secrets, self.settings.seed)
            back = plan.operator.transposed_times(sums - plan.operator @ known.double())
            single = torch.zeros(len(whole), len(at), dtype=torch.float64)
            single[at, torch.arange(len(at))] = 1.0
            columns, own = plan.operator @ single, whole[at].double()
            self.precision += ((columns.T @ columns) * (own @ own.T)).numpy() / noise**2
            self.evidence += (back * whole.double()).sum(1)[at].numpy() / noise**2
            picked, inside = plan.inside
            found.append(combine_sums(plan, [(inside, sums[picked].to(rows.dtype))], noise).to(rows.dtype))
        return found


def _run(generator: Generator[Outbox, Inbox, _Value]) -> _Value:
    """Run a generator of all agents on one host, which sends nothing."""
    return drive(generator, lambda outbox: {})
