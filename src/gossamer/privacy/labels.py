"""The attacks on labels: of boundary training vertices from one backward message, and of an agent's training set as a
whole from its first gradient.

Backward rows of the last layer are R^T g with g_i = (softmax(y^_i) - e_{y_i}) times positive numbers: the one negative
entry of g_i is the class, and negative entries are labels. The sum of these g_i is the gradient of the output's bias:
with the probabilities of the public initial weights it gives the number of an agent's training vertices in each class
(Zhao, Mopuri and Bilen 2020, "iDLG: improved deep leakage from gradients", read labels off gradients in this way).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.exchange import Phase
from gossamer.array_types import Floats, Ints
from gossamer.privacy.equations import read_messages
from gossamer.privacy.seen_rows import SeenPlan
from gossamer.privacy.tracing import draw_start
from gossamer.runs.deployment import Deployment
from gossamer.runs.recordings import TRAINING, Recording
from gossamer.runs.settings import Settings


@dataclass(frozen=True)
class SenderLabels:
    """Labels of one agent's boundary training vertices, guessed from backward rows."""

    vertices: Ints
    guess: NDArray[Any]  # classes [vertices], or sets of labels [vertices, classes]
    right: NDArray[np.bool_] | None  # the guess is; None: the truth is not at hand


@dataclass(frozen=True)
class LabelAttack:
    """Guesses by agent, the rate of the most frequent class among them, and how near class counts come (1: exact)."""

    senders: dict[int, SenderLabels]
    baseline: float | None  # None: the truth is not at hand
    counts: dict[int, float]  # 1 - total variation distance to the true distribution over classes, by agent
    counts_baseline: float | None  # of the curious agents' own distribution

    def count(self, sender: int | None = None) -> tuple[int, int]:
        """Labels of a sender (or of all) that were found (without the truth: guessed), and tried."""
        chosen = [one for z, one in self.senders.items() if sender in (None, z)]
        found = (len(one.vertices) if one.right is None else int(one.right.sum()) for one in chosen)
        return sum(found), sum(len(one.vertices) for one in chosen)


def attack_labels(
    recording: Recording,
    seen: SeenPlan,
    deployment: Deployment,
    settings: Settings,
    curious: Collection[int],
    judged: bool = True,
) -> LabelAttack | None:
    """Guess labels from the first training step's backward rows; None for real values or without a training step."""
    graph = deployment.graph
    index = sum(gather.powers[-1] for gather in deployment.network.gathers) - 1
    messages = recording.select(TRAINING, Phase.BACKWARD, index)
    if graph.targets.dtype.kind == "f" or not messages:
        return None
    first = min(messages)
    several = graph.targets.dtype == bool
    found = {}
    for z, rows in seen.backward.items():
        width = graph.num_outputs
        g = np.linalg.pinv(rows.matrix) @ read_messages(messages[first], rows, settings, TRAINING, width)
        guess = np.asarray(g < 0 if several else g.argmin(1))
        same = guess == graph.targets[rows.vertices]
        found[z] = SenderLabels(rows.vertices, guess, (same.all(1) if several else same) if judged else None)
    if not judged:  # class counts need the number of an agent's training vertices
        return LabelAttack(found, None, {}, None)
    counts, counts_baseline = _attack_counts(recording, deployment, settings, curious)
    tried = np.concatenate([one.vertices for one in found.values()]) if found else np.empty(0, dtype=np.int64)
    return LabelAttack(found, _guess(graph.targets[tried]), counts, counts_baseline)


def _guess(targets: np.ndarray) -> float:
    """Rate at which the most frequent class, or set of labels, is right."""
    if not len(targets):
        return 0.0
    _, counts = np.unique(targets, axis=0, return_counts=True)
    return float(counts.max() / len(targets))


def _attack_counts(
    recording: Recording, deployment: Deployment, settings: Settings, curious: Collection[int]
) -> tuple[dict[int, float], float | None]:
    """Nearness of the distributions over classes that the first gradients give, by agent."""
    graph, layer = deployment.graph, len(deployment.network.layers) - 1
    name = f"layer.{layer}.bias"
    if graph.targets.dtype.kind != "i" or name not in deployment.network.shapes() or settings.class_weights != "none":
        return {}, None
    gradients = _read_first_gradients(recording, deployment, settings, curious, name)
    own = graph.targets[graph.train & np.isin(deployment.assignment, list(curious))]
    mine = np.bincount(own[own >= 0], minlength=graph.num_outputs) / max(len(own), 1)
    near, usual = {}, []
    for z, gradient in gradients.items():
        shown = graph.targets[graph.train & (deployment.assignment == z)]
        if not len(shown):
            continue
        # Small initial weights give all classes nearly the same probability.
        counts = np.clip(len(shown) / graph.num_outputs - gradient * graph.train.sum(), 0, None)
        truth = np.bincount(shown, minlength=graph.num_outputs) / len(shown)
        near[z] = 1 - 0.5 * float(np.abs(counts / max(counts.sum(), 1e-12) - truth).sum())
        usual.append(1 - 0.5 * float(np.abs(mine - truth).sum()))
    return near, float(np.mean(usual)) if usual else None


def _read_first_gradients(
    recording: Recording, deployment: Deployment, settings: Settings, curious: Collection[int], name: str
) -> Mapping[int, Floats]:
    """Neighbours' first gradients of one parameter: the first tracker is one, and gd and momentum move by it."""
    steps = settings.consensus_every == 1 and not settings.mix_first and settings.update in ("gd", "momentum")
    shown = settings.compress == "none" and settings.consensus == "plain"
    if not shown or not ((settings.tracks and settings.consensus_every == 1) or steps):
        return {}
    shapes = deployment.network.shapes()
    sizes = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())])
    place = list(shapes).index(name)
    part = slice(int(sizes[place]), int(sizes[place + 1]))
    found = {}
    for one in recording.received:
        if (one.plan, one.phase, one.index, one.step) == (TRAINING, Phase.CONSENSUS, 0, 0):
            z = one.link.sender
            vector = one.content[part].double().numpy()
            start = draw_start(deployment, settings, [z])[z][name].double().numpy()
            if not settings.tracks:
                vector = (start - vector) / (settings.step_size * deployment.num_agents)
            decays = settings.weight_decay and (settings.decay_layers == "all" or name.startswith("layer.0."))
            found[z] = vector - (settings.weight_decay / deployment.num_agents * start if decays else 0.0)
    return {z: g for z, g in found.items() if z not in curious}
