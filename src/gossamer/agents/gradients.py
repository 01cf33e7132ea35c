"""Losses and exact gradients as generators of exchanges: `forward` (eq. (5)-(7)) and `backward` (eq. (12)).

Between two exchanges the arithmetic is the layers' own (model/layers), local and differentiated by autograd; across an
exchange the chain rule is its transpose over the same links reversed (propagation).
"""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.batches import split_chunks
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.host import Host
from gossamer.agents.passes import Pass
from gossamer.model import Params
from gossamer.model.losses import losses


@dataclass(frozen=True)
class Segment:
    """The local arithmetic between two exchanges, kept for the backward pass: leaves -> result."""

    leaves: Params  # the gathered offers before it, `z`, if there are any, and the layers' parameters
    result: Tensor


def loss_gradient(
    host: Host, on: Pass | None = None, dropout: bool = True, first: int = 0
) -> Generator[Outbox, Inbox, tuple[Tensor, Params]]:
    """The hosted part of L, and every hosted agent's gradient of L with respect to its own weights.

    L is that of all training examples, or its estimate from the mini-batch `on`. Long batch axes go through in chunks,
    numbered from `first` on: row codecs draw other random numbers for other parts.
    """
    total: Tensor | None = None
    gradient: Params = {}
    for number, part in enumerate(split_chunks(host, host.train_pass if on is None else on), first):
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


def backward(
    host: Host, on: Pass, segments: list[Segment], number: int = 0, signals: list[Tensor] | None = None
) -> Generator[Outbox, Inbox, Params]:
    """Each hosted agent's exact gradient of L with respect to its own w_k (eq. (12)).

    `segments` are forward's on the same pass, the last one ending in the loss. From the last layer to the first: the
    gradient of the gathered offers goes back to each offer, one reversed exchange for each propagation, then through
    the local segment before it. Segments are consumed one by one, so that their memory serves the next ones. The
    gradients of the gathered offers are added to `signals`, if it is given, the last layer's first.
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
        signal = gradient.pop("z")
        if signals is not None:
            signals.append(signal)
        g = yield from on.plan.layers[index - 1].backward(signal, key)
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
