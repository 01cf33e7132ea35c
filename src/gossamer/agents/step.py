"""Algorithm 1 without I/O: one iteration as a generator that yields messages to send and is sent those that arrived.

`training_step` is composed of the gradient (`forward`, eq. (5)-(7), and `backward`, eq. (12): gradients.py; of private
runs private_gradient.py), the update (eq. (15)) and consensus (eq. (16)).

Beyond the paper, agents may update by gradient tracking: every agent estimates the whole gradient from its own and its
neighbours' estimates (Di Lorenzo and Scutari 2016, "NEXT: in-network nonconvex optimization"; Nedic, Olshevsky and Shi
2017, "Achieving geometric convergence for distributed optimization over time-varying graphs").
"""

from collections.abc import Generator
from dataclasses import replace

import torch
from torch import Tensor

from gossamer.agents.batches import draw_mini_batch
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.gradients import loss_gradient
from gossamer.agents.host import (
    GRADIENT,
    TRACKER,
    TRACKER_CONSENSUS,
    WEIGHT_CONSENSUS,
    Host,
    find_step_links,
    select_state,
)
from gossamer.agents.private_gradient import private_gradient
from gossamer.model import Params


def training_step(host: Host) -> Generator[Outbox, Inbox, tuple[Host, Tensor]]:
    """One iteration of Algorithm 1. Returns the host after it and its part of the (mini-batch's) loss before it.

    Weights and state of the given host are overwritten in place: use the returned one.
    """
    t, options = host.step, host.training
    if options.private is not None:
        loss, gradient = yield from private_gradient(host, options.private)
    else:
        loss, gradient = yield from loss_gradient(host, draw_mini_batch(host), links=find_step_links(host))
    host.add_decay(gradient, host.params)
    mix = bool(options.consensus_every) and (t + 1) % options.consensus_every == 0
    if options.track:
        gradient = yield from _track_gradient(host, gradient, mix)
    params, index = host.params, host.consensus.exchanges if options.track else 0
    if mix and options.mix_first:  # w_k = sum_z C_kz w_z - eta times the direction at the old w_k
        room = {name: torch.empty_like(w) for name, w in params.items()}
        params = yield from host.consensus(params, room, select_state(host.state, WEIGHT_CONSENSUS), index, t)
    psi = options.rule.update(gradient, host.state, params, step_size(host), t)
    if mix and not options.mix_first:
        psi = yield from host.consensus(psi, params, select_state(host.state, WEIGHT_CONSENSUS), index, t)
    return replace(host, params=psi, step=t + 1), loss


def _track_gradient(host: Host, gradient: Params, mix: bool) -> Generator[Outbox, Inbox, Params]:
    """Gradient tracking: m s_k, every agent's estimate of the gradient of L, with s <- C (s + g - g_before).

    C's columns sum to 1: the mean of all s_k is that of all g_k, at every step. The result overwrites the gradient.
    """
    state = host.state
    for name, g in gradient.items():
        state[f"{TRACKER}{name}"].add_(g).sub_(state[f"{GRADIENT}{name}"])
        state[f"{GRADIENT}{name}"].copy_(g)
    if mix:
        estimates = {name: state[f"{TRACKER}{name}"] for name in gradient}
        mixed = yield from host.consensus(estimates, gradient, select_state(state, TRACKER_CONSENSUS), 0, host.step)
        for name, estimate in estimates.items():
            estimate.copy_(mixed[name])
    return {name: torch.mul(state[f"{TRACKER}{name}"], host.num_agents, out=g) for name, g in gradient.items()}


def step_size(host: Host) -> float:
    """eta^t for the hosted agents: m times the centralised one unless the rule is scale-free, or its gradient is."""
    options = host.training
    eta = options.step_size / (1.0 + options.step_decay * host.step)
    return eta if options.rule.scale_free or options.track else eta * host.num_agents
