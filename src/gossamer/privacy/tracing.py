"""Tracing: other agents' weights at each step, as curious agents compute them from what consensus sends (eq. (16)).

w_z at step t + 1 is sum_z' C_zz' psi_z'; the psi of an agent that they receive nothing of is taken to be the mean of
those that they receive, which is right up to the disagreement, and so is w_z itself where row z of C is not known.
Where consensus is masked or compressed they take their own, which are as near, and the same where both mix alike.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.exchange import Phase
from gossamer.agents.host import draw_initial_params
from gossamer.model import Params
from gossamer.privacy.knowledge import Knowledge, receives_all_of
from gossamer.runs.deployment import Deployment
from gossamer.runs.recordings import TRAINING, Recording
from gossamer.runs.settings import Settings


@dataclass(frozen=True)
class TracedWeights:
    """An agent's weights at a step as they were found out; `exact` but for rounding."""

    params: Params
    exact: bool


def trace_weights(
    recording: Recording,
    deployment: Deployment,
    settings: Settings,
    knowledge: Knowledge,
    curious: Collection[int],
    agents: Collection[int],
    steps: int,
) -> dict[tuple[int, int], TracedWeights]:
    """Weights of other agents by agent and step, from step 0 to `steps`, where there is something to go by."""
    traced = {(z, 0): TracedWeights(start, True) for z, start in draw_start(deployment, settings, agents).items()}
    if not (knowledge.weights_known and settings.consensus_every):
        C, every = deployment.certificate.combination, settings.consensus_every
        for z in agents:
            mine = min(curious, key=lambda k: float(np.abs(C[k] - C[z]).max()))  # who mixes most alike
            same = bool(every) and not settings.mix_first and settings.compress == "none"
            same = same and knowledge.combination_known
            same = same and bool(np.allclose(C[mine], C[z], rtol=0, atol=1e-12))
            for t in range(1, steps + 1):
                if (mine, t) in recording.own:
                    traced[z, t] = TracedWeights(recording.own[mine, t], same and t % every == 0)
        return traced
    shapes = deployment.network.shapes()
    index = 1 if settings.tracks else 0
    psi: dict[int, dict[int, Tensor]] = {}
    for one in (*recording.sent, *recording.received):
        if (one.plan, one.phase, one.index) == (TRAINING, Phase.CONSENSUS, index):
            psi.setdefault(one.step, {})[one.link.sender] = one.content
    C = deployment.certificate.combination
    for t, received in psi.items():
        if settings.mix_first:
            for z in set(agents) & set(received):
                traced[z, t] = TracedWeights(_split(received[z], shapes), True)
            continue
        middle = torch.stack(list(received.values())).mean(0)
        for z in agents:
            if not knowledge.combination_known:
                traced[z, t + 1] = TracedWeights(_split(middle, shapes), False)
                continue
            mixture = torch.zeros_like(middle)
            for other in C[z].nonzero()[0].tolist():
                mixture.add_(received.get(other, middle), alpha=float(C[z, other]))
            traced[z, t + 1] = TracedWeights(_split(mixture, shapes), receives_all_of(deployment.links, curious, z))
    return traced


def draw_start(deployment: Deployment, settings: Settings, agents: Collection[int]) -> dict[int, Params]:
    """Initial weights of agents, which are public."""
    if deployment.initial is not None:
        given = {name: torch.from_numpy(part) for name, part in deployment.initial.params.items()}
        return {z: {name: part.to(settings.torch_dtype) for name, part in given.items()} for z in agents}
    order = sorted(agents)
    if not order:
        return {}
    drawn = draw_initial_params(
        deployment.network,
        order,
        settings.seed,
        settings.initial_deviation,
        settings.starts_alike,
        settings.torch_dtype,
    )
    return {z: {name: part[n] for name, part in drawn.items()} for n, z in enumerate(order)}


def _split(vector: Tensor, shapes: dict[str, tuple[int, ...]]) -> Params:
    """The parameters of a message, one after the other as in the network."""
    sizes = [int(torch.Size(shape).numel()) for shape in shapes.values()]
    parts = vector.split(sizes)
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
