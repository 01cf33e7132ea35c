"""Knowledge of curious agents beside the messages: dropout masks, and the weights that a sender multiplied by.

A curious agent receives psi_z of its neighbours in every plain consensus. It knows w_z = sum_z' C_zz' psi_z' exactly
if it receives those of all z' that z mixes, and else up to the agents' disagreement (El Mrini, Cyffers and Bellet 2024,
"Privacy attacks in decentralized learning", take this further, to agents that are no neighbours). A masked consensus
shows it its own w_k alone, which is w_z where both have the same row of C, and else near it. Initial weights are
public: they come from the seed or from a file. C is taken to be public, too, unless there is one agent's folder alone,
which has its row of C. Dropout masks are public with --public-randomness only.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError
from gossamer.runs.deployment import Deployment
from gossamer.runs.evaluated_steps import is_evaluated
from gossamer.runs.recordings import shows_weights
from gossamer.runs.settings import Settings


@dataclass(frozen=True)
class Knowledge:
    """`masks_known`: dropout masks follow from what all share. `weights_known`: consensus shows psi_z to neighbours.
    `combination_known`: rows of C of other agents, too."""

    masks_known: bool
    weights_known: bool
    combination_known: bool = True


@dataclass(frozen=True)
class KnownSteps:
    """Steps whose rows of one sender are known linear functions of features, with exactly known weights."""

    evaluations: tuple[int, ...]
    training: tuple[int, ...]


def find_knowledge(settings: Settings) -> Knowledge:
    """Knowledge that the settings give agents of each other; compressed weights are no longer exact."""
    return Knowledge(settings.public_randomness, weights_known=shows_weights(settings))


def check_curious(agents: Sequence[int], num_agents: int) -> tuple[int, ...]:
    """Refuse numbers that are no agents, doubles, and all agents at once."""
    wrong = [k for k in agents if not 0 <= k < num_agents]
    if wrong or not agents:
        got = ", ".join(map(str, wrong)) or "none"
        raise GossamerError(f"expected agents from 0 to {num_agents - 1} as --observer or --coalition, got {got}")
    if len(set(agents)) < len(agents):
        raise GossamerError(f"expected every agent of the coalition once, got {', '.join(map(str, agents))}")
    if len(agents) == num_agents:
        raise GossamerError(f"all {num_agents} agents are curious: nobody is left to learn about; leave one out")
    return tuple(sorted(agents))


def receives_all_of(links: NDArray[np.bool_], curious: Collection[int], z: int) -> bool:
    """Return whether the curious agents receive the weights of all that z mixes."""
    known = {*curious, *np.flatnonzero(links[list(curious)].any(0)).tolist()}
    return {z, *np.flatnonzero(links[z]).tolist()} <= known


def know_weights(
    deployment: Deployment, settings: Settings, knowledge: Knowledge, curious: Collection[int], z: int
) -> bool:
    """Return whether the curious agents know w_z exactly after a consensus: they receive all weights that z mixes, or
    what z mixes of others is a combination of what they mix themselves."""
    if not knowledge.combination_known:  # then whom z mixes is not known either, but for those that receive all weights
        everyone = bool(deployment.links[list(curious)].any(0).sum() == deployment.num_agents - len(curious))
        return knowledge.weights_known and everyone
    if knowledge.weights_known and receives_all_of(deployment.links, curious, z):
        return True
    C = deployment.certificate.combination
    others = np.setdiff1d(np.arange(len(C)), list(curious))
    mixed, wanted = C[np.array(list(curious))][:, others], C[z, others]
    combined = np.linalg.lstsq(mixed.T, wanted, rcond=None)[0] @ mixed
    return settings.compress == "none" and bool(np.allclose(combined, wanted, rtol=0, atol=1e-12))


def find_known_steps(
    deployment: Deployment, settings: Settings, knowledge: Knowledge, curious: Collection[int], z: int, steps: int
) -> KnownSteps:
    """The steps of a run of so many at which the curious agents know w_z exactly and can read the rows."""
    training = set(range(steps))
    evaluations = {t for t in range(steps + 1) if is_evaluated(settings, t) or t == steps}
    every = settings.consensus_every
    known = {0}
    if every and settings.mix_first:  # w_z itself is sent to neighbours, before the update
        received = knowledge.weights_known and deployment.links[list(curious), z].any()
        known |= {t for t in range(steps) if (t + 1) % every == 0 and received}
    elif every and know_weights(deployment, settings, knowledge, curious, z):
        known |= {t for t in range(1, steps + 1) if t % every == 0}
    codec = settings.row_codec
    if codec is not None or deployment.graph.batch is not None:  # mini-batches hold some of the time steps
        training = set()
        evaluations = set() if codec is not None and codec.protects else evaluations
    if not knowledge.masks_known and deployment.network.layers[0].dropout:
        training = set()
    return KnownSteps(tuple(sorted(evaluations & known)), tuple(sorted(training & known)))
