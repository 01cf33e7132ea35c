"""The audit of a private run: what curious agents receive, its proved epsilon, and an attack on what is noisy.

A private run has no backward rows. Forward rows cross once, as sums with noise. The attack takes all sums of a first
hop that come to the curious agents, and solves for the rows of the boundary vertices by least squares: a training
vertex gives its class, so that the largest entry is a guess of its label. A proof of privacy bounds how much better
than guessing such attacks can be.
"""

from collections.abc import Sequence

import numpy as np
import torch

from gossamer.agents.exchange import join_parts
from gossamer.agents.noisy_sums import plan_sums, run_hops
from gossamer.agents.salts import Secrets
from gossamer.agents.secret_streams import derive_secrets
from gossamer.privacy.algebra import VertexRanks
from gossamer.privacy.audit import Audit, NeighbourAudit
from gossamer.privacy.knowledge import check_curious, find_knowledge
from gossamer.privacy.labels import LabelAttack, SenderLabels
from gossamer.runs.budgets import measure_epsilon
from gossamer.runs.deployment import Deployment
from gossamer.runs.hosts import cut_share
from gossamer.runs.settings import Settings


def audit_private(deployment: Deployment, settings: Settings, curious: Sequence[int]) -> Audit:
    """What the plan of a private run says: no equation in a vertex's features is known, and epsilon is proved."""
    who, spec = check_curious(curious, deployment.num_agents), settings.privacy_spec
    assert spec is not None
    owner, d = deployment.assignment, deployment.graph.num_features
    entries = deployment.shift.tocoo()
    near = np.isin(owner[entries.row], who) & ~np.isin(owner[entries.col], who)
    neighbours = []
    for z in range(deployment.num_agents):
        if z in who or not deployment.links[list(who), z].any():
            continue
        vertices = np.unique(entries.col[near & (owner[entries.col] == z)]).astype(np.int64)
        none = np.zeros(len(vertices), dtype=bool)
        ranks = VertexRanks(vertices, none, np.zeros(len(vertices), dtype=np.int64), d)
        labels = int(deployment.graph.train[vertices].sum())
        neighbours.append(NeighbourAudit(z, ranks, "noisy" if spec.level == "node" else "exact", labels, 0))
    found = Audit(who, find_knowledge(settings), settings, d, neighbours, settings.steps, 0)
    found.epsilon = measure_epsilon(spec, settings.encoder_steps, settings.steps) if spec.noise else None
    return found


def attack_sums(
    audit: Audit, deployment: Deployment, settings: Settings, secrets: Secrets | None
) -> LabelAttack | None:
    """Guess labels of boundary training vertices from the noisy sums of a first hop, in which every training vertex
    gives its class."""
    spec, graph, who = settings.privacy_spec, deployment.graph, audit.curious
    assert spec is not None
    if not spec.hops:
        return None
    own = derive_secrets(settings.seed, range(deployment.num_agents)) if secrets is None else secrets
    noise = spec.sum_noise(settings.encoder_steps, settings.steps)
    width = graph.num_outputs
    known = torch.nn.functional.one_hot(torch.from_numpy(graph.targets).clamp(min=0), width).double() - 1.0 / width
    rows = torch.where(torch.from_numpy(graph.train)[:, None], known, torch.zeros_like(known))
    received: dict[tuple[int, int], torch.Tensor] = {}
    for k in range(deployment.num_agents):
        share = cut_share(deployment, settings, [k])
        given = rows[torch.from_numpy(share.vertices[share.hosted])]
        plan = plan_sums(share, weighted=spec.level == "node")
        sent = next(run_hops(plan, given, 1, noise, own.select([k]), settings.seed))
        received |= {
            (link.sender, link.receiver): join_parts(message)
            for link, message in sent.messages.items()
            if link.receiver in who
        }
    found = {z: _guess(z, received, deployment, spec.level == "node") for z in range(deployment.num_agents)}
    senders = {z: one for z, one in found.items() if one is not None}
    classes = np.concatenate([graph.targets[one.vertices] for one in senders.values()] or [np.empty(0, np.int64)])
    baseline = float(np.bincount(classes).max() / len(classes)) if len(classes) else 0.0
    return LabelAttack(senders, baseline, {}, None)


def _guess(
    z: int, received: dict[tuple[int, int], torch.Tensor], deployment: Deployment, weighted: bool
) -> SenderLabels | None:
    """Labels of one agent's boundary training vertices by least squares on all of its sums."""
    owner, graph = deployment.assignment, deployment.graph
    entries = deployment.shift.tocoo()
    apart = entries.row != entries.col
    i, j = entries.row[apart], entries.col[apart]
    degree = np.bincount(j, minlength=len(owner))
    blocks, sums = [], []
    for (sender, k), message in sorted(received.items()):
        if sender != z:
            continue
        chosen = (owner[j] == z) & (owner[i] == k)
        to = np.unique(i[chosen])
        block = np.zeros((len(to), len(owner)))
        block[np.searchsorted(to, i[chosen]), j[chosen]] = degree[j[chosen]] ** -0.5 if weighted else 1.0
        blocks.append(block)
        sums.append(message.double().numpy())
    if not blocks:
        return None
    matrix = np.concatenate(blocks)
    vertices = np.flatnonzero(matrix.any(0))
    estimate = np.linalg.pinv(matrix[:, vertices]) @ np.concatenate(sums)
    train = graph.train[vertices]
    guess = estimate[train].argmax(1)
    return SenderLabels(vertices[train], guess, guess == graph.targets[vertices[train]])
