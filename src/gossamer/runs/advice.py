"""Warnings about settings that are likely to disappoint, each with its remedy (docs/communication.md)."""

import warnings
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.host import Host
from gossamer.data import DataGraph
from gossamer.errors import GossamerWarning
from gossamer.runs.deployment import Deployment
from gossamer.runs.settings import Settings

SKEWED = 0.4  # mean total variation distance from which on local adam was seen to fall behind
GROWING = 5  # evaluations in a row


def label_skew(graph: DataGraph, assignment: NDArray[np.int64], num_agents: int) -> float:
    """Label skew: the mean total variation distance between an agent's distribution of classes and that of all agents,
    over the labelled vertices. 0: all the same; near 1: every agent has classes of its own."""
    if graph.num_classes is None:
        return 0.0
    there = np.flatnonzero(graph.labelled)
    counts = np.zeros((num_agents, graph.num_classes))
    np.add.at(counts, (assignment[there], graph.targets[there]), 1)
    sizes = counts.sum(1)
    shares = counts / np.maximum(sizes, 1)[:, None]
    distance = np.abs(shares - counts.sum(0) / max(1, len(there))).sum(1) / 2
    return float((sizes * distance).sum() / max(1, len(there)))


def warn_before_training(deployment: Deployment, settings: Settings) -> None:
    """Warn about a run before its first step."""
    warn_of_skewed_labels(deployment, settings)
    warn_of_consensus(settings)


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
    """Where mixing drives the agents apart and the method of consensus knows a remedy: they differ by more than a
    weight, and more so at every one of the last evaluations. Return whether a warning was given."""
    remedy = settings.consensus_method.advice.drift
    if remedy is None or len(disagreements) <= GROWING:
        return False
    last = disagreements[-1 - GROWING :]
    size = sum(float(part.abs().sum()) for part in host.params.values())
    mean = size / sum(part.numel() for part in host.params.values())
    growing = all(after >= before for before, after in pairwise(last))  # what is not known is no reason
    if not (growing and last[-1] >= mean and last[-1] >= 4 * last[0]):
        return False
    warnings.warn(
        f"the agents' weights move apart: at step {host.step} two of them differ by {last[-1]:.2g} on average, and a "
        f"weight is {mean:.2g}; {remedy}",
        GossamerWarning,
        stacklevel=2,
    )
    return True
