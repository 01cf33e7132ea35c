"""Warnings about runs that are likely to disappoint or have done so, each with its remedy (docs/communication.md)."""

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.agents.host import Host
from gossamer.agents.selection import find_best_step
from gossamer.data import DataGraph
from gossamer.data.targets import list_names
from gossamer.errors import GossamerWarning
from gossamer.layer_specs import NetworkOptions
from gossamer.model.layer_options import find_unused
from gossamer.model.network import sees_weights
from gossamer.model.shift import UNWEIGHTED
from gossamer.runs.deployment import Deployment
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings

SKEWED = 0.4  # mean total variation distance from which on local adam was seen to fall behind
GROWING = 5  # evaluations in a row
ENOUGH_STEPS = 50  # after which a run should have learnt something
NO_BETTER = 0.98  # share of a guess's loss from which on a loss is no better
LARGE_WEIGHT = 1e4  # mean magnitude
TINY = 1e-300  # below any sum of weights
OF_ERRORS = ("loss", "mse", "mae", "rmse", "r2")  # scores that fall behind only where validation vertices do
FITTED = "what was learnt helps no validation vertex; try more training labels or --weight-decay"
ANOTHER_SCORE = "choose by another score, as --score loss does"
CLEAR_SIGNAL = 200.0  # number of training examples over the noise in their sum, from which on something is learnt
CLOSER = "try a smaller --step-size, or a topology with a larger --gap"


def label_skew(graph: DataGraph, assignment: NDArray[np.int64], num_agents: int) -> float:
    """Label skew: the mean total variation distance between an agent's distribution of classes (or labels) and that of
    all agents, over the labelled vertices. 0: all the same; near 1: every agent has classes of its own."""
    if graph.num_classes is None:
        return 0.0
    there = np.flatnonzero(graph.labelled)
    counts = np.zeros((num_agents, graph.num_classes))
    if graph.task == "multilabel":
        np.add.at(counts, assignment[there], graph.targets[there])
    else:
        np.add.at(counts, (assignment[there], graph.targets[there]), 1)
    sizes = counts.sum(1)
    total = max(1, int(sizes.sum()))
    shares = counts / np.maximum(sizes, 1)[:, None]
    distance = np.abs(shares - counts.sum(0) / total).sum(1) / 2
    return float((sizes * distance).sum() / total)


def warn_before_training(deployment: Deployment, settings: Settings) -> None:
    """Warn about a run before its first step."""
    warn_of_masks(deployment.graph)
    warn_of_unseen_classes(deployment.graph)
    warn_of_skewed_labels(deployment, settings)
    warn_of_consensus(settings)
    warn_of_noise(int(deployment.graph.train.sum()), settings)
    warn_of_links_that_stay(deployment, settings)
    if settings.privacy_spec is None:
        warn_of_unused_options(settings)
        warn_of_edge_weights(deployment, settings)
    elif settings.layers != NetworkOptions.layers:
        warnings.warn(
            f"layers = {settings.layers!r} has no effect: private runs train a linear network on noisy sums over "
            "neighbours (gossamer docs privacy); leave layers or privacy out",
            GossamerWarning,
            stacklevel=2,
        )


def warn_of_links_that_stay(deployment: Deployment, settings: Settings) -> None:
    """Options of boundary rows over links that may be down."""
    if deployment.deliveries is not None and deployment.deliveries.rows_change:
        return
    for name in ("missing", "max_age"):
        value = getattr(settings, name)
        if value != Settings.model_fields[name].default:
            warnings.warn(
                f"{name} = {value!r} has no effect: boundary rows of topology = {settings.topology!r} take links that "
                "stay; leave it out, or take failing:P or switching:FILE (gossamer docs topology)",
                GossamerWarning,
                stacklevel=3,
            )


def warn_of_unused_options(settings: Settings) -> None:
    """Options of other kinds of layers than the network has."""
    unused = list(find_unused(settings.network))
    if settings.shift not in ("auto", "identity") and not sees_weights(settings.network):
        unused.append("shift")
    for name in unused:
        warnings.warn(
            f"{name} = {getattr(settings, name)!r} has no effect: layers = {settings.layers!r} have no use for it; "
            "leave it out, or take other layers (gossamer docs layers)",
            GossamerWarning,
            stacklevel=3,
        )


def warn_of_edge_weights(deployment: Deployment, settings: Settings) -> None:
    """Weights of edges that no layer looks at."""
    weights = deployment.graph.weights
    if not len(weights) or (weights == weights[0]).all():
        return
    if settings.shift_kind in UNWEIGHTED or not sees_weights(settings.network):
        warnings.warn(
            f"edge weights are not used: layers = {settings.layers!r} take every edge alike, as PyTorch Geometric's "
            "do; gcn, polynomial, chebyshev, sgc and appnp use them",
            GossamerWarning,
            stacklevel=3,
        )


def warn_of_noise(num_labelled: int, settings: Settings) -> None:
    """Every agent adds noise to its gradients: few training examples drown in it."""
    spec = settings.privacy_spec
    if spec is None or spec.level != "node" or not spec.noise or not settings.encoder_steps:
        return
    multiplier = spec.split(settings.encoder_steps, settings.steps).encoder
    signal = num_labelled * math.sqrt(settings.encoder_steps) / (multiplier * math.sqrt(settings.agents))
    if signal < CLEAR_SIGNAL:
        warnings.warn(
            f"{num_labelled} training vertices are few for epsilon {spec.epsilon:g} with the noise of "
            f"{settings.agents} agents: expect little more than guessing; label many more, or take a larger epsilon or "
            "fewer agents",
            GossamerWarning,
            stacklevel=3,
        )


def warn_of_masks(graph: DataGraph) -> None:
    """Scores on an empty mask are unknown."""
    for name, mask, purpose in (
        ("validation", graph.validation, "nothing shows which weights are best, and the last ones are kept"),
        ("test", graph.test, "nothing shows how well the network does on new vertices"),
    ):
        if not mask.any():
            warnings.warn(
                f"the {name} mask is empty: {purpose}; mark some labelled vertices for {name}",
                GossamerWarning,
                stacklevel=2,
            )


def warn_of_unseen_classes(graph: DataGraph) -> None:
    """A network never predicts a class or label that it was never shown."""
    if graph.num_classes is None:
        return
    shown = graph.targets[graph.train]
    counts = shown.sum(0) if graph.task == "multilabel" else np.bincount(shown, minlength=graph.num_classes)
    unseen = [graph.class_names[c] if graph.class_names else str(c) for c in np.flatnonzero(counts == 0)]
    if unseen:
        warnings.warn(
            f"{len(unseen)} of {graph.num_classes} classes have no training label and will not be learnt "
            f"({list_names(unseen)}); mark some of their vertices for training, or leave these classes out",
            GossamerWarning,
            stacklevel=2,
        )


def warn_of_consensus(settings: Settings) -> None:
    """Adam moves every weight by about as much, whatever its gradient: agents differ in many directions at once."""
    advice = settings.consensus_method.advice.adam
    if advice is not None and settings.is_scale_free and settings.agents > 1:
        warnings.warn(advice, GossamerWarning, stacklevel=2)


def warn_of_skewed_labels(deployment: Deployment, settings: Settings) -> None:
    """Local adam divides every agent's gradient by its own statistics: where agents see other classes, that no longer
    adds up to the descent of the common loss."""
    if not settings.is_scale_free or settings.tracks or settings.agents == 1:
        return
    skew = label_skew(deployment.graph, deployment.assignment, settings.agents)
    if skew > SKEWED:
        warnings.warn(
            f"the agents' labels differ strongly (mean total variation distance {skew:.2f}), and adam with local "
            "statistics may learn slowly or not at all there; leave out --no-track, or take --update momentum",
            GossamerWarning,
            stacklevel=2,
        )


def warn_of_agents_apart(host: Host, settings: Settings, disagreements: Sequence[float]) -> bool:
    """Where the agents drift apart although they mix: they differ by more than a weight, and more so at every one of
    the last evaluations. Return whether a warning was given."""
    if settings.consensus_every == 0 or len(disagreements) <= GROWING:
        return False
    last = disagreements[-1 - GROWING :]
    mean = _mean_magnitude(host)
    growing = all(after >= before for before, after in pairwise(last))  # what is not known is no reason
    if not (growing and last[-1] > mean and last[-1] >= 4 * last[0]):
        return False
    remedy = settings.consensus_method.advice.drift or CLOSER
    warnings.warn(
        f"the agents' weights move apart: at step {host.step} two of them differ by {last[-1]:.2g} on average, and a "
        f"weight is {mean:.2g}; {remedy}",
        GossamerWarning,
        stacklevel=2,
    )
    return True


def _mean_magnitude(host: Host) -> float:
    """Mean absolute value of the hosted agents' weights."""
    size = sum(float(part.abs().sum()) for part in host.params.values())
    return size / sum(part.numel() for part in host.params.values())


def measure_guessing(run: Run) -> float:
    """Training loss of the best constant output: the entropy of the training classes, the mean binary entropy of the
    labels, or the variance of the training targets, all weighted as the loss is, from sums over all hosts, which call
    it together."""
    on, engine = run.host.full_pass, run.engine
    train = on.masks["train"]
    targets = on.targets[train]
    weights = torch.ones(len(targets), dtype=torch.float64) if on.weights is None else on.weights[train].double()
    if targets.dtype == torch.int64:
        counts = engine.total(torch.bincount(targets, weights, minlength=run.description["num_classes"] or 0))
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * shares.log()).sum())
    values = targets.reshape(-1, targets.shape[-1]).double()
    sizes = weights.sum().expand(1, values.shape[1])
    size, total = engine.total(torch.cat([sizes, (weights[:, None] * values).sum(0, keepdim=True)]))
    mean = total / size.clamp(min=TINY)
    if targets.dtype == torch.bool:
        there = mean if on.positive_weight is None else mean * on.positive_weight.double()
        chance = there / (there + 1 - mean)  # whose loss is least
        return float(-(torch.xlogy(there, chance) + torch.xlogy(1 - mean, 1 - chance)).mean())
    squares = engine.total((weights[:, None] * (values - mean).square()).sum(0))
    return float((squares / size.clamp(min=TINY)).mean())


def _warn_of_undefined_score(run: Run) -> None:
    """No weights are the best by a score that is not defined, as ROC AUC is not where all vertices have one class."""
    validated = float(run.engine.total(run.host.full_pass.masks["validation"].sum()))  # none: warned of before training
    if run.settings.keep == "best" and validated and find_best_step(run.host) is None and run.engine.leads:
        warnings.warn(
            f"the validation {run.score.name} is not defined on the {validated:.0f} validation examples, and the last "
            "weights are kept; mark more or other vertices for validation, or choose another --score",
            GossamerWarning,
            stacklevel=3,
        )


def warn_after_training(run: Run, loss: float, disagreement: float) -> None:
    """Warn about a run that has learnt nothing, whose agents have not agreed, or whose best weights are not known. All
    hosts call it together."""
    step, settings = run.host.step, run.settings
    _warn_of_undefined_score(run)
    if step < ENOUGH_STEPS:
        return
    guessing = measure_guessing(run)
    if not run.engine.leads:
        return
    mean = _mean_magnitude(run.host)
    last = run.history[-1]["train"]["loss"]
    if guessing > 0 and last < NO_BETTER * guessing <= loss:
        warnings.warn(
            f"the weights of step {run.kept.step} are kept for their validation {run.score.name}, and their training "
            f"loss, {loss:.4g}, is no better than that of the best guess that is the same for all vertices, "
            f"{guessing:.4g}; at the last step it was {last:.4g}: "
            f"{FITTED if run.score.name in OF_ERRORS else ANOTHER_SCORE}, or take --keep last",
            GossamerWarning,
            stacklevel=2,
        )
    elif guessing > 0 and not loss < NO_BETTER * guessing:
        warnings.warn(
            f"nothing was learnt: after {step} steps the training loss is {loss:.4g}, and the best guess that is the "
            f"same for all vertices has {guessing:.4g}; try another --step-size, more --steps, or the default --update "
            "with --standardise",
            GossamerWarning,
            stacklevel=2,
        )
    if mean > LARGE_WEIGHT:
        warnings.warn(f"a weight is {mean:.2g} on average; try a smaller --step-size", GossamerWarning, stacklevel=2)
    elif settings.consensus_every and disagreement > mean:
        warnings.warn(
            f"the agents have not agreed: two of them differ by {disagreement:.2g} on average, and a weight is "
            f"{mean:.2g}; {settings.consensus_method.advice.drift or CLOSER}",
            GossamerWarning,
            stacklevel=2,
        )
