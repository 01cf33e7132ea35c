"""Algorithm 1 without I/O: one iteration as a generator that yields messages to send and is sent those that arrived.

`training_step` is composed of `forward` (eq. (5)-(7)), `backward` (eq. (12)) and consensus (eq. (16)). Between two
exchanges the arithmetic is the layers' own (model/layers), local and differentiated by autograd; across an exchange the
chain rule is its transpose over the same links reversed (propagation).

Beyond the paper, agents may update by gradient tracking: every agent estimates the whole gradient from its own and its
neighbours' estimates (Di Lorenzo and Scutari 2016, "NEXT: in-network nonconvex optimization"; Nedic, Olshevsky and Shi
2017, "Achieving geometric convergence for distributed optimization over time-varying graphs").
"""

from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gossamer.agents.batches import draw_mini_batch, split_chunks
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.host import GRADIENT, TRACKER, TRACKER_CONSENSUS, WEIGHT_CONSENSUS, Host, select_state
from gossamer.agents.passes import Pass
from gossamer.model import Params
from gossamer.model.losses import losses


@dataclass(frozen=True)
class Segment:
    """The local arithmetic between two exchanges, kept for the backward pass: leaves -> result."""

    leaves: Params  # the gathered offers before it, `z`, if there are any, and the layers' parameters
    result: Tensor


def training_step(host: Host) -> Generator[Outbox, Inbox, tuple[Host, Tensor]]:
    """One iteration of Algorithm 1. Returns the host after it and its part of the (mini-batch's) loss before it.

    Weights and state of the given host are overwritten in place: use the returned one.
    """
    t, options = host.step, host.training
    loss, gradient = yield from loss_gradient(host, draw_mini_batch(host))
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


def loss_gradient(
    host: Host, on: Pass | None = None, dropout: bool = True
) -> Generator[Outbox, Inbox, tuple[Tensor, Params]]:
    """The hosted part of L, and every hosted agent's gradient of L with respect to its own weights.

    L is that of all training examples, or its estimate from the mini-batch `on`. Long batch axes go through in chunks.
    """
    total: Tensor | None = None
    gradient: Params = {}
    for number, part in enumerate(split_chunks(host, host.train_pass if on is None else on)):
        outputs, segments = yield from forward(host, part, differentiate=True, dropout=dropout, number=number)
        with torch.enable_grad():
            loss = labelled_loss(host, part, outputs)
        segments[-1] = Segment(segments[-1].leaves, loss)
        found = yield from backward(host, part, segments, number)
        if total is None:
            total, gradient = loss.detach(), found
        else:
            total = total + loss.detach()
            for name, g in found.items():
                gradient[name].add_(g)
    if total is None:
        raise AssertionError("a pass without a time step")
    return total, gradient


def step_size(host: Host) -> float:
    """eta^t for the hosted agents: m times the centralised one unless the rule is scale-free, or its gradient is."""
    options = host.training
    eta = options.step_size / (1.0 + options.step_decay * host.step)
    return eta if options.rule.scale_free or options.track else eta * host.num_agents


def forward(
    host: Host, on: Pass, differentiate: bool = False, dropout: bool = False, number: int = 0
) -> Generator[Outbox, Inbox, tuple[Tensor, list[Segment]]]:
    """The network's outputs for the pass's vertices, one exchange for each propagation (eq. (5)-(7)).

    With `differentiate`, the local segments remember their graphs; the last segment's result is the output. `number`
    is that of a part of a long batch.
    """
    key = host.training.seed, host.step, number
    segments: list[Segment] = []
    x, leaves = on.features, Params()
    for index, (layer, plan) in enumerate(zip(host.network.layers, on.plan.layers, strict=True)):
        weights = {name: _leaf(host.params[f"layer.{index}.{name}"], differentiate) for name in layer.parameters()}
        named = {f"layer.{index}.{name}": leaf for name, leaf in weights.items()}
        with torch.set_grad_enabled(differentiate):
            offers = layer.offer(on.input(index, x, key[:2] if dropout else None), weights)
        segments.append(Segment({**leaves, **named}, offers))
        z = yield from plan.forward(offers.detach(), key)
        leaves = Params(z=_leaf(z, differentiate), **named)
        with torch.set_grad_enabled(differentiate):
            x = layer.finish(leaves["z"], plan.outputs, weights)
    segments.append(Segment(leaves, x))
    return x, segments


def backward(host: Host, on: Pass, segments: list[Segment], number: int = 0) -> Generator[Outbox, Inbox, Params]:
    """Each hosted agent's exact gradient of L with respect to its own w_k (eq. (12)).

    `segments` are forward's on the same pass, the last one ending in the loss. From the last layer to the first: the
    gradient of the gathered offers goes back to each offer, one reversed exchange for each propagation, then through
    the local segment before it. Segments are consumed one by one, so that their memory serves the next ones.
    """
    gradient: Params = {}
    g: Tensor | None = None
    key = host.training.seed, host.step, number
    for index in reversed(range(len(segments))):
        leaves, result = segments[index].leaves, segments.pop().result
        found = torch.autograd.grad(result, list(leaves.values()), g, allow_unused=True)
        for name, part in zip(leaves, found, strict=True):  # a parameter may serve offer, finish, or both
            if part is not None:
                gradient[name] = gradient[name] + part if name in gradient else part
        if index == 0:
            break
        del leaves, result, found
        g = yield from on.plan.layers[index - 1].backward(gradient.pop("z"), key)
    return {name: gradient[name] for name in host.params}


def labelled_loss(host: Host, on: Pass, outputs: Tensor) -> Tensor:
    """The hosted part of L = 1/|T_D| sum over labelled vertices (eq. (3)); for a mini-batch |T_D| b/T.

    Weights of the examples sum to |T_D| (data/example_weights.py).
    """
    each = losses(outputs, on.targets, on.positive_weight)
    weighted = each if on.weights is None else each * on.weights
    return weighted[on.masks["train"]].sum() / (host.num_labelled * on.fraction)


def _leaf(tensor: Tensor, differentiate: bool) -> Tensor:
    return tensor.detach().requires_grad_(differentiate)
